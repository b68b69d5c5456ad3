/** Rounds over time: a plot in which one is chosen, and the table. */
import { useState } from "preact/hooks";
import { useRows } from "../../api/live";
import { session } from "../../api/session";
import type { RoundSummary } from "../../api/types";
import { Command, Loading, Panel, ProblemMessage } from "../../parts/basics";
import { type Column, Table } from "../../parts/table";
import { go, to } from "../../route";
import { age, count, moment, noun, percent } from "../../words";
import { Lines, type Series } from "./parts";

const MOST = 200;

const number = (value: number | null): string => (value === null ? "-" : String(value));

/** The price of fairness as a part of the most that could be placed. */
function fairnessCosts(round: RoundSummary): number | null {
  const prices = round.prices;
  if (!prices || prices.of_fairness === null) return null;
  return prices.most ? prices.of_fairness / prices.most : 0;
}

const COLUMNS: Column<RoundSummary>[] = [
  {
    name: "Round",
    value: (each) => each.number,
    cell: (each) => <a href={to("rounds", String(each.number))}>{each.number}</a>,
    numeric: true,
  },
  { name: "Slot", value: (each) => each.slot_start_at, cell: (each) => moment(each.slot_start_at) },
  { name: "Policy", value: (each) => each.policy, cell: (each) => each.policy },
  { name: "Decided by", value: (each) => each.decided_by, cell: (each) => each.decided_by },
  { name: "Placed", value: (each) => each.placed ?? -1, cell: (each) => number(each.placed), numeric: true },
  { name: "Left out", value: (each) => each.left_out ?? -1, cell: (each) => number(each.left_out), numeric: true },
  {
    name: "Off fair",
    value: (each) => each.fair_distance ?? -1,
    cell: (each) => (each.fair_distance === null ? "-" : percent(each.fair_distance)),
    numeric: true,
  },
  {
    name: "Fairness costs",
    value: (each) => fairnessCosts(each) ?? -1,
    cell: (each) => {
      const costs = fairnessCosts(each);
      return costs === null ? "-" : percent(costs);
    },
    numeric: true,
  },
];

/** Columns of which tenants see nothing. */
const FOR_OPERATORS = new Set(["Placed", "Left out", "Fairness costs"]);

export function Timeline() {
  const { data, problem } = useRows<RoundSummary>("rounds", [{ limit: MOST }]);
  const columns = session.isOperator ? COLUMNS : COLUMNS.filter((each) => !FOR_OPERATORS.has(each.name));
  return (
    <>
      <h1>Rounds</h1>
      <ProblemMessage problem={problem} />
      {data === null ? (
        problem === null && <Loading />
      ) : (
        <>
          {data.rows.length > 0 && <Plot rounds={data.rows.toReversed()} />}
          <Table
            label="rounds"
            columns={columns}
            rows={data.rows}
            more={data.more}
            keyOf={(each) => String(each.number)}
            empty="No rounds yet: nothing was requested."
          />
        </>
      )}
      <Command line="fuga rounds" calls={[{ path: `rounds?limit=${MOST}` }]} />
    </>
  );
}

const HEIGHT = 160;
const WIDTH = 10;

/** Rounds from the oldest to the newest; one is chosen, the newest until another is. */
function Plot({ rounds }: { rounds: RoundSummary[] }) {
  const [chosen, choose] = useState<number | null>(null);
  const found = rounds.findIndex((each) => each.number === chosen);
  const at = found < 0 ? rounds.length - 1 : found;
  const round = rounds[at];
  if (!round) return null;
  const pick = (place: number): void => {
    const next = rounds[Math.min(rounds.length - 1, Math.max(0, place))];
    if (next) choose(next.number === rounds.at(-1)?.number ? null : next.number);
  };
  const counts = rounds.some((each) => each.placed !== null);
  const keys: Record<string, () => void> = {
    ArrowLeft: () => pick(at - 1),
    ArrowDown: () => pick(at - 1),
    ArrowRight: () => pick(at + 1),
    ArrowUp: () => pick(at + 1),
    PageDown: () => pick(at - 10),
    PageUp: () => pick(at + 10),
    Home: () => pick(0),
    End: () => pick(rounds.length - 1),
    Enter: () => go("rounds", String(round.number)),
  };
  const press = (event: PointerEvent): void => {
    if (event.buttons === 0) return;
    const box = (event.currentTarget as Element).getBoundingClientRect();
    pick(Math.floor(((event.clientX - box.left) / box.width) * rounds.length));
  };
  const lines: Series[] = [
    { name: "distance from fair", colour: "one", values: rounds.map((each) => each.fair_distance) },
    ...(counts ? [{ name: "price of fairness", colour: "two" as const, values: rounds.map(fairnessCosts) }] : []),
  ];
  return (
    <div class="timeline">
      <section class="panel">
        <h2>The last {count(rounds.length, "round")}</h2>
        <p class="legend">
          {counts ? (
            <>
              <span class="chip of-placed" /> placed <span class="chip of-left-out" /> not placed{" "}
            </>
          ) : (
            <>
              <span class="chip of-placed" /> your dominant share{" "}
            </>
          )}
          <span class="chip of-fallback" /> the fallback decided
        </p>
        <div
          class="rounds"
          role="slider"
          tabIndex={0}
          aria-label="Round"
          aria-valuemin={1}
          aria-valuemax={rounds.length}
          aria-valuenow={at + 1}
          aria-valuetext={inWords(round)}
          onKeyDown={(event) => {
            const act = keys[event.key];
            if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
            event.preventDefault();
            act();
          }}
          onPointerDown={press}
          onPointerMove={press}
        >
          <Bars rounds={rounds} at={at} counts={counts} />
        </div>
        <p class="ends">
          <span>{moment(rounds[0]?.slot_start_at)}</span>
          <span>{moment(rounds.at(-1)?.slot_start_at)}</span>
        </p>
        <Lines label="Fairness" at={at} onPick={pick} format={percent} series={lines} />
      </section>
      <Chosen round={round} />
    </div>
  );
}

const shareOf = (round: RoundSummary): number =>
  Math.max(0, ...round.shares.map((each) => Number((each as { after?: number }).after ?? 0)));

function Bars({ rounds, at, counts }: { rounds: RoundSummary[]; at: number; counts: boolean }) {
  const value = (each: RoundSummary): [number, number] =>
    counts ? [each.placed ?? 0, each.left_out ?? 0] : [shareOf(each), 0];
  const most = Math.max(counts ? 1 : 0.01, ...rounds.map((each) => value(each)[0] + value(each)[1]));
  // Few rounds stay narrow; many share the width.
  const all = Math.max(rounds.length, 1) * WIDTH;
  const high = (many: number): number => (many / most) * (HEIGHT - 22);
  return (
    <svg viewBox={`0 0 ${all} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {rounds.map((each, place) => {
        const [placed, left] = value(each);
        const x = place * WIDTH;
        const base = HEIGHT - 14;
        return (
          <g key={each.number} class={place === at ? "chosen" : undefined}>
            <rect class="slot" x={x} y={0} width={WIDTH} height={HEIGHT} />
            <rect class="of-placed" x={x + 1} y={base - high(placed)} width={WIDTH - 2} height={high(placed)} />
            <rect
              class="of-left-out"
              x={x + 1}
              y={base - high(placed) - high(left)}
              width={WIDTH - 2}
              height={high(left)}
            />
            {each.decided_by !== "policy" && (
              <rect class="of-fallback" x={x + 1} y={HEIGHT - 10} width={WIDTH - 2} height={7} />
            )}
          </g>
        );
      })}
    </svg>
  );
}

function inWords(round: RoundSummary): string {
  const words = [`round ${round.number}`, `by ${round.decided_by === "policy" ? round.policy : round.decided_by}`];
  if (round.placed !== null) words.push(`${round.placed} placed`, `${round.left_out ?? 0} not placed`);
  if (round.fair_distance !== null) words.push(`${percent(round.fair_distance)} from fair`);
  return words.join(", ");
}

function Chosen({ round }: { round: RoundSummary }) {
  const costs = fairnessCosts(round);
  const dearest = (round.prices?.classes ?? [])
    .flatMap((each) => Object.entries(each.price).map(([resource, price]) => ({ resource, price, of: each })))
    .filter((each) => each.price > 0)
    .sort((a, b) => b.price - a.price)[0];
  return (
    <Panel title={`Round ${round.number}`}>
      <dl>
        <div>
          <dt>Slot</dt>
          <dd>
            {moment(round.slot_start_at)}, {age(round.slot_start_at)} ago
          </dd>
        </div>
        <div>
          <dt>Decided by</dt>
          <dd>
            {round.decided_by === "policy" ? round.policy : `the fallback: ${round.fallback_reason}`}
            {round.cut && ", its search was cut"}
          </dd>
        </div>
        {round.placed !== null && (
          <div>
            <dt>Placed</dt>
            <dd>
              {round.placed}, {round.left_out ?? 0} not placed
              {(round.dropped ?? 0) > 0 && `, ${round.dropped} dropped as hosts had changed`}
            </dd>
          </div>
        )}
        {round.fair_distance !== null && (
          <div>
            <dt>Off fair</dt>
            <dd>{percent(round.fair_distance)}</dd>
          </div>
        )}
        {costs !== null && round.prices && (
          <div>
            <dt>Fairness costs</dt>
            <dd>
              {percent(costs)} of the {noun(round.prices.resource)} that could be placed
            </dd>
          </div>
        )}
        {dearest && round.prices && (
          <div>
            <dt>Short of</dt>
            <dd>
              {noun(dearest.resource)}
              {dearest.of.labels.length > 0 && ` on ${dearest.of.labels.join(", ")}`}
            </dd>
          </div>
        )}
      </dl>
      <p class="buttons">
        <a class="button primary" href={to("rounds", String(round.number))}>
          Open
        </a>
        {session.isOperator && (
          <a class="button" href={to("rounds", String(round.number), "game")}>
            Watch as theatre
          </a>
        )}
      </p>
    </Panel>
  );
}
