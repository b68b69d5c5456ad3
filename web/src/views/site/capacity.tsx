/** Capacity over time, by resource and class of hosts, and when it is full at the present growth. */
import { useMemo, useState } from "preact/hooks";
import { useReading, useRows } from "../../api/live";
import { get } from "../../api/client";
import type { CapacityPoint, CapacityTrend, CapacityTrends } from "../../api/types";
import { Command, Loading, Panel, ProblemMessage } from "../../parts/basics";
import { type Column, Table } from "../../parts/table";
import { amount, moment, noun, shellWord } from "../../words";
import { Lines } from "../rounds/parts";
import "../rounds/rounds.css";
import "./site.css";

const READ_EVERY_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Up to two days by the hour, as `fuga capacity --trend` has them. */
const SPANS = [
  { days: 2, name: "2 days, by the hour" },
  { days: 30, name: "30 days" },
  { days: 90, name: "90 days" },
  { days: 365, name: "a year" },
];

export function CapacityView() {
  const [days, setDays] = useState(30);
  const [hostClass, setHostClass] = useState("");
  const query = { days, ...(hostClass ? { host_class: hostClass } : {}) };
  const { data, problem } = useReading<CapacityTrends>(
    JSON.stringify(query),
    (key) => get<CapacityTrends>("capacity/trends", JSON.parse(key)),
    READ_EVERY_MS,
  );
  const chosen = hostClass ? ` --class ${shellWord(hostClass)}` : "";
  return (
    <>
      <h1>Capacity</h1>
      <div class="map-tools">
        <label>
          Time
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            {SPANS.map((each) => (
              <option key={each.days} value={each.days}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          Class of hosts
          <select value={hostClass} onChange={(event) => setHostClass(event.currentTarget.value)}>
            <option value="">all hosts</option>
            {data?.classes.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      </div>
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.trends.length === 0 && <p class="empty">No history yet: the control centre that leads takes a sample each minute.</p>}
      {data?.trends.map((each) => (
        <Resource key={`${each.resource} ${days} ${hostClass}`} trend={each} days={days} hostClass={hostClass} />
      ))}
      <Command
        line={`fuga capacity --trend --days ${days}${chosen}`}
        calls={[{ path: `capacity/trends?days=${days}${hostClass ? `&host_class=${encodeURIComponent(hostClass)}` : ""}` }]}
      />
    </>
  );
}

function Resource({ trend, days, hostClass }: { trend: CapacityTrend; days: number; hostClass: string }) {
  const { resource } = trend;
  const stepMs = days <= 2 ? HOUR_MS : DAY_MS;
  const now = Math.floor(Date.now() / stepMs);
  const first = now - (days * DAY_MS) / stepMs;
  const { data, problem } = useRows<CapacityPoint>(
    "capacity/history",
    [
      {
        since: new Date(first * stepMs).toISOString(),
        step: stepMs === HOUR_MS ? "hour" : "day",
        resource,
        ...(hostClass ? { host_class: hostClass } : {}),
      },
    ],
    READ_EVERY_MS,
  );
  const steps = useMemo(() => {
    const found = new Map(data?.rows.map((each) => [Math.floor(Date.parse(each.at) / stepMs), each]));
    return Array.from({ length: now - first + 1 }, (_, place) => found.get(first + place) ?? null);
  }, [data, first, now]);
  const [at, setAt] = useState<number | null>(null);
  const format = (value: number): string => `${amount(resource, value)} ${noun(resource)}`;
  const values = (name: "in_service_mean" | "committed_mean" | "used_mean"): (number | null)[] =>
    steps.map((each) => each?.[name] ?? null);
  const lastKnown = steps.findLastIndex((each) => each !== null);
  const shown = Math.min(at ?? lastKnown, steps.length - 1);
  const series = [
    { name: "in service", colour: "two" as const, values: values("in_service_mean") },
    { name: "committed", colour: "one" as const, values: values("committed_mean") },
    ...(steps.some((each) => each?.used_mean != null)
      ? [{ name: "used", colour: "three" as const, values: values("used_mean") }]
      : []),
  ];
  return (
    <Panel title={resource}>
      <p>{trend.text}</p>
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {lastKnown >= 0 && (
        <>
          <p class="hint">{moment(new Date((first + shown) * stepMs).toISOString())}</p>
          <Lines label={resource} series={series} at={Math.max(0, shown)} format={format} onPick={setAt} />
          <details>
            <summary>As a table</summary>
            <Table
              label={resource}
              columns={columnsOf(format)}
              rows={steps.filter((each) => each !== null).toReversed()}
              keyOf={(each) => each.at}
              empty="No history yet."
            />
          </details>
        </>
      )}
    </Panel>
  );
}

function columnsOf(format: (value: number) => string): Column<CapacityPoint>[] {
  const shown = (value: number | null): string => (value === null ? "-" : format(value));
  return [
    { name: "Begin", value: (each) => each.at, cell: (each) => moment(each.at) },
    { name: "In service", value: (each) => each.in_service_mean, cell: (each) => format(each.in_service_mean), numeric: true },
    { name: "Committed", value: (each) => each.committed_mean, cell: (each) => format(each.committed_mean), numeric: true },
    { name: "At most", value: (each) => each.committed_max, cell: (each) => format(each.committed_max), numeric: true },
    { name: "Used", value: (each) => each.used_mean ?? -1, cell: (each) => shown(each.used_mean), numeric: true },
    { name: "Waiting", value: (each) => each.waiting_mean ?? -1, cell: (each) => shown(each.waiting_mean), numeric: true },
  ];
}
