/** What-ifs: the site simulated with something changed, next to the site as it is. For operators. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { newKey, send } from "../../api/client";
import { useLive, useRows } from "../../api/live";
import { session } from "../../api/session";
import type { Host, PolicySummary, WhatIf, WhatIfDetail, WhatIfInput, WhatIfReport, WhatIfRun } from "../../api/types";
import { ConfirmButton, useSending } from "../../parts/dialogs";
import { Bar, Command, Fact, Loading, Panel, ProblemMessage, State } from "../../parts/basics";
import { Listing } from "../../parts/listing";
import { aged, type Column, Table } from "../../parts/table";
import { go, to } from "../../route";
import { amount, count, duration, moment, noun, percent, shellWord, shortId } from "../../words";
import { Lines } from "../rounds/parts";
import "../rounds/rounds.css";
import "./site.css";

/** While one runs: somebody waits for it. */
const LOOK_EVERY_MS = 1_000;
const HOURS = [1, 6, 24, 72, 168];

const COLUMNS: Column<WhatIf>[] = [
  {
    name: "What-if",
    value: (each) => each.id,
    cell: (each) => <a href={to("what-ifs", each.id)}>{shortId(each.id)}</a>,
  },
  { name: "Changed", value: (each) => said(each.arguments), cell: (each) => said(each.arguments) },
  { name: "State", value: (each) => each.state, cell: (each) => <State word={each.state} /> },
  { name: "Over", value: (each) => each.progress, cell: (each) => percent(each.progress), numeric: true },
  { name: "Hours", value: (each) => each.arguments.hours, cell: (each) => each.arguments.hours, numeric: true },
  aged((each) => each.requested_at),
  { name: "Requested by", value: (each) => each.requested_by, cell: (each) => each.requested_by },
];

/** What is changed, in a line. */
function said(input: WhatIfInput): string {
  const { add_hosts: added, remove_hosts: gone = [], parameters = {}, weights = {} } = input;
  const sizes = Object.entries(added?.capacity ?? {}).map(([name, n]) => `${amount(name, n)} ${noun(name)}`);
  const set = Object.entries(parameters).map(([name, value]) => `${name}=${asTyped(value)}`);
  const parts = [
    ...(added
      ? [
          `${count(added.count, "host")} more${added.like ? ` like ${added.like}` : ""}${
            sizes.length > 0 ? ` with ${sizes.join(", ")}` : ""
          }${added.zone ? ` in ${added.zone}` : ""}`,
        ]
      : []),
    ...(gone.length > 0 ? [`without ${gone.join(", ")}`] : []),
    ...(input.policy ? [`by ${input.policy}${set.length > 0 ? ` (${set.join(", ")})` : ""}`] : []),
    ...Object.entries(weights).map(([name, weight]) => `${name} weighs ${weight}`),
  ];
  return parts.join("; ");
}

export function WhatIfsView() {
  return (
    <Listing
      title="What if"
      label="what-ifs"
      path="what-ifs"
      queries={[{ limit: 100 }]}
      line="fuga what-if list"
      columns={COLUMNS}
      keyOf={(each) => each.id}
      empty="No what-ifs yet."
    >
      {!session.readOnly && <Asking />}
    </Listing>
  );
}

type Body = Partial<WhatIfInput>;

/** `NAME=VALUE`, separated by commas or spaces; a comma inside a list or an object is the value's. */
function pairs(typed: string): [string, string][] {
  return typed
    .split(/[,\s]+(?![^[{]*[\]}])/)
    .map((each): [string, string] => {
      const at = each.indexOf("=");
      return [each.slice(0, Math.max(0, at)), each.slice(at + 1)];
    })
    .filter(([name, value]) => name !== "" && value !== "");
}

/** As the command reads it: JSON, or else text. */
function valueOf(typed: string): unknown {
  try {
    return JSON.parse(typed);
  } catch {
    return typed;
  }
}

const asTyped = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
const numbers = (typed: string): Record<string, number> =>
  Object.fromEntries(pairs(typed).map(([name, n]) => [name, Number(n)]));

function Asking() {
  const hosts = useRows<Host>("hosts").data?.rows;
  const policies = useRows<PolicySummary>("rounds/policies").data?.rows;
  const [hours, setHours] = useState(24);
  const [more, setMore] = useState("");
  const [like, setLike] = useState("");
  const [capacity, setCapacity] = useState("");
  const [zone, setZone] = useState("");
  const [without, setWithout] = useState("");
  const [policy, setPolicy] = useState("");
  const [parameters, setParameters] = useState("");
  const [weights, setWeights] = useState("");
  const sending = useSending();
  const sizes = numbers(capacity);
  // Hosts whose size is typed need be like no other.
  const model = like || (Object.keys(sizes).length > 0 ? "" : (hosts?.[0]?.name ?? ""));
  const body = useMemo((): Body => {
    const gone = without.split(/[\s,]+/).filter(Boolean);
    const added = {
      count: Number(more),
      ...(model ? { like: model } : {}),
      ...(Object.keys(sizes).length > 0 ? { capacity: sizes } : {}),
      ...(zone ? { zone } : {}),
    };
    const weighed = numbers(weights);
    const set = Object.fromEntries(pairs(parameters).map(([name, value]) => [name, valueOf(value)]));
    return {
      hours,
      ...(Number(more) > 0 ? { add_hosts: added } : {}),
      ...(gone.length > 0 ? { remove_hosts: gone } : {}),
      ...(policy ? { policy, ...(Object.keys(set).length > 0 ? { parameters: set } : {}) } : {}),
      ...(Object.keys(weighed).length > 0 ? { weights: weighed } : {}),
    };
  }, [hours, more, model, capacity, zone, without, policy, parameters, weights]);
  const key = useMemo(newKey, [JSON.stringify(body)]);
  const ready = Object.keys(body).length > 1;
  const submit = (event: Event): void => {
    event.preventDefault();
    void sending.run(async () => {
      const made = await send<WhatIf>("POST", "what-ifs", { body, key });
      go("what-ifs", made.id);
    });
  };
  return (
    <form class="form propose" onSubmit={submit}>
      <div class="fields">
        <label>
          Requests of the last
          <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
            {HOURS.map((each) => (
              <option key={each} value={each}>
                {count(each, "hour")}
              </option>
            ))}
          </select>
        </label>
        <label>
          More hosts
          <input
            type="number"
            min="0"
            max="10000"
            placeholder="0"
            value={more}
            onInput={(event) => setMore(event.currentTarget.value)}
          />
        </label>
        <label>
          Like the host
          <input list="what-if-hosts" value={like} placeholder={model} onInput={(event) => setLike(event.currentTarget.value)} />
          <datalist id="what-if-hosts">
            {hosts?.slice(0, 200).map((each) => <option key={each.id} value={each.name} />)}
          </datalist>
        </label>
        <label>
          Capacity{" "}
          <span class="hint">(RESOURCE=NUMBER, separated by commas; what differs from the host, if one is named)</span>
          <input value={capacity} placeholder="that of the host" onInput={(event) => setCapacity(event.currentTarget.value)} />
        </label>
        <label>
          In zone <span class="hint">(else that of the host)</span>
          <input value={zone} maxLength={63} onInput={(event) => setZone(event.currentTarget.value)} />
        </label>
        <label>
          Without hosts <span class="hint">(names, or label=LABEL, separated by commas)</span>
          <input list="what-if-hosts" value={without} onInput={(event) => setWithout(event.currentTarget.value)} />
        </label>
        <label>
          Policy
          <select value={policy} onChange={(event) => setPolicy(event.currentTarget.value)}>
            <option value="">as it is</option>
            {policies?.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          Parameters <span class="hint">(of that policy: NAME=VALUE, separated by commas)</span>
          <input
            value={parameters}
            disabled={policy === ""}
            onInput={(event) => setParameters(event.currentTarget.value)}
          />
        </label>
        <label>
          Weights <span class="hint">(TENANT=NUMBER, separated by commas)</span>
          <input value={weights} onInput={(event) => setWeights(event.currentTarget.value)} />
        </label>
      </div>
      <p class="hint">
        The site as it is now and the same with these changes, both simulated for as many hours: requests of the past
        hours come again. Nothing is changed.
      </p>
      <ProblemMessage problem={sending.problem} />
      <p class="buttons">
        <button type="submit" class="primary" disabled={sending.busy || !ready}>
          {sending.busy ? "Sending …" : "Simulate"}
        </button>
      </p>
      <Command line={commandOf(body)} calls={[{ method: "POST", path: "what-ifs", body }]} />
    </form>
  );
}

function commandOf(body: Body): string {
  const words = ["fuga what-if run --hours", String(body.hours)];
  if (body.add_hosts) {
    words.push("--add-hosts", String(body.add_hosts.count));
    if (body.add_hosts.like) words.push("--like", shellWord(body.add_hosts.like));
    for (const [name, n] of Object.entries(body.add_hosts.capacity ?? {})) words.push("--capacity", shellWord(`${name}=${n}`));
    if (body.add_hosts.zone) words.push("--zone", shellWord(body.add_hosts.zone));
  }
  for (const each of body.remove_hosts ?? []) words.push("--remove-host", shellWord(each));
  if (body.policy) words.push("--policy", shellWord(body.policy));
  for (const [name, value] of Object.entries(body.parameters ?? {})) {
    words.push("-p", shellWord(`${name}=${asTyped(value)}`));
  }
  for (const [name, weight] of Object.entries(body.weights ?? {})) words.push("--weight", shellWord(`${name}=${weight}`));
  return [...words, "--wait"].join(" ");
}

export function WhatIfView({ id }: { id: string }) {
  const path = `what-ifs/${encodeURIComponent(id)}`;
  const { data, problem, again } = useLive<WhatIfDetail>(path);
  const open = data !== null && data.ended_at === null;
  useEffect(() => {
    if (!open) return undefined;
    const timer = setInterval(again, LOOK_EVERY_MS);
    return () => clearInterval(timer);
  }, [open, again]);
  if (data === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  return (
    <>
      <h1>What if {shortId(data.id)}</h1>
      <ProblemMessage problem={problem} />
      <Panel title="Change">
        <dl class="facts">
          <Fact name="Changed" value={said(data.arguments)} />
          <Fact name="State" value={<State word={data.state} />} />
          <Fact name="Requested" value={`${moment(data.requested_at)} by ${data.requested_by}`} />
          <Fact name="Cancelled by" value={data.cancelled_by} />
        </dl>
        {data.last_error && (
          <p class="message bad" role="alert">
            {data.last_error}
          </p>
        )}
        {open && (
          <p>
            <Bar part={data.progress} label={`${percent(data.progress)} of both simulations over`} />{" "}
            <span role="status">
              {data.state === "waiting" ? "It waits for another one." : `${Math.round(data.progress * 100)} % over`}
            </span>
          </p>
        )}
        {open && !session.readOnly && (
          <p class="buttons">
            <ConfirmButton
              name="Cancel"
              title="End this what-if?"
              action="End it"
              danger
              line={`fuga what-if cancel ${data.id}`}
              method="POST"
              path={`${path}/cancel`}
              body={{}}
              onDone={again}
            >
              <p>Its simulation is ended, and there will be no report.</p>
            </ConfirmButton>
          </p>
        )}
        <Command line={`fuga what-if show ${data.id}`} calls={[{ path }]} />
      </Panel>
      {data.report && <Report report={data.report} />}
    </>
  );
}

const span = (seconds: number | null): string => (seconds === null ? "-" : duration(seconds));
const part = (value: number | null | undefined): string => (value === null || value === undefined ? "-" : percent(value));

function Report({ report }: { report: WhatIfReport }) {
  const { inputs, as_it_is: before, what_if: after } = report;
  const measures: [string, (of: WhatIfRun) => string][] = [
    ["policy", (of) => of.policy],
    ["hosts", (of) => String(of.hosts)],
    ["VMs requested", (of) => String(of.vms.asked)],
    ["VMs placed", (of) => String(of.vms.placed)],
    ["of those requested", (of) => part(of.placed_part)],
    ["of those requested, by size", (of) => part(of.placed_by_size)],
    ["waiting at the end", (of) => String(of.vms.waiting)],
    ["mean wait, waiting ones so far", (of) => span(of.wait_s.mean_so_far ?? null)],
    ["mean wait of those placed", (of) => span(of.wait_s.mean)],
    ["median wait of those placed", (of) => span(of.wait_s.p50)],
    ["90 % of those placed wait at most", (of) => span(of.wait_s.p90)],
    ["mean wait of all, by size", (of) => span(of.waiting_by_size_s ?? null)],
    ["distance from fair", (of) => part(of.fair_distance)],
    ...Object.keys(before.used).map((resource): [string, (of: WhatIfRun) => string] => [
      `${noun(resource)} in use`,
      (of) => part(of.used[resource]),
    ]),
  ];
  return (
    <>
      <Panel title="Side by side">
        <p>
          {count(inputs.hosts, "host")} at {moment(inputs.at)}, {count(inputs.vms_running, "VM")} running and{" "}
          {inputs.vms_waiting} waiting; {count(inputs.vms_repeated, "VM")} of the last {count(inputs.hours, "hour")} come
          again. Both simulations have the same requests, lifetimes and seeds.
        </p>
        {!inputs.lifetimes_known && (
          <p class="hint">Too few VMs have ended to say how long others live: what runs is taken to run on.</p>
        )}
        {report.cut.map((each) => (
          <p key={each} class="message">
            {each}
          </p>
        ))}
        <table class="comparison">
          <thead>
            <tr>
              <td />
              <th scope="col">as it is</th>
              <th scope="col">what if</th>
            </tr>
          </thead>
          <tbody>
            {measures.map(([name, of]) => (
              <tr key={name} class={of(before) === of(after) ? undefined : "differs"}>
                <th scope="row">{name}</th>
                <td class="numeric">{of(before)}</td>
                <td class="numeric">{of(after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Panel>
      <Panel title="Over time">
        <Pair title="VMs waiting" before={before.lines.waiting} after={after.lines.waiting} format={whole} />
        <Pair title="VMs running" before={before.lines.running} after={after.lines.running} format={whole} />
        {Object.keys(before.lines.used).map((name) => (
          <Pair
            key={name}
            title={`${noun(name)} in use`}
            before={before.lines.used[name] ?? []}
            after={after.lines.used[name] ?? []}
            format={percent}
          />
        ))}
        <Pair title="Off fair" before={before.lines.fair_distance} after={after.lines.fair_distance} format={percent} />
      </Panel>
      <Panel title="Tenants">
        <Tenants before={before} after={after} />
      </Panel>
      <Panel title="Waiting at the end">
        <Waiting before={before} after={after} />
      </Panel>
    </>
  );
}

const whole = (value: number): string => String(Math.round(value));

function Pair(given: {
  title: string;
  before: readonly (number | null)[];
  after: readonly (number | null)[];
  format: (value: number) => string;
}) {
  return (
    <>
      <h3>{given.title}</h3>
      <Lines
        label={`${given.title}, at the end`}
        series={[
          { name: "as it is", colour: "one", values: [...given.before] },
          { name: "what if", colour: "two", values: [...given.after] },
        ]}
        at={Math.max(given.before.length, given.after.length) - 1}
        format={given.format}
      />
    </>
  );
}

interface TenantRow {
  name: string;
  before: WhatIfRun["tenants"][number] | undefined;
  after: WhatIfRun["tenants"][number] | undefined;
}

const TENANTS: Column<TenantRow>[] = [
  { name: "Tenant", value: (each) => each.name, cell: (each) => each.name },
  { name: "Share", value: (each) => each.before?.share ?? 0, cell: (each) => part(each.before?.share), numeric: true },
  { name: "What if", value: (each) => each.after?.share ?? 0, cell: (each) => part(each.after?.share), numeric: true },
  { name: "Placed", value: (each) => each.before?.placed ?? 0, cell: (each) => placedOfRequested(each.before), numeric: true },
  { name: "Placed, what if", value: (each) => each.after?.placed ?? 0, cell: (each) => placedOfRequested(each.after), numeric: true },
  {
    name: "Mean wait so far",
    value: (each) => each.before?.mean_wait_so_far_s ?? 0,
    cell: (each) => span(each.before?.mean_wait_so_far_s ?? null),
    numeric: true,
  },
  {
    name: "Mean wait so far, what if",
    value: (each) => each.after?.mean_wait_so_far_s ?? 0,
    cell: (each) => span(each.after?.mean_wait_so_far_s ?? null),
    numeric: true,
  },
];

const placedOfRequested = (of: TenantRow["before"]): string => (of ? `${of.placed} of ${of.asked}` : "-");

function Tenants({ before, after }: { before: WhatIfRun; after: WhatIfRun }) {
  const names = [...new Set([...after.tenants, ...before.tenants].map((each) => each.tenant))];
  const rows = names.map((name) => ({
    name,
    before: before.tenants.find((each) => each.tenant === name),
    after: after.tenants.find((each) => each.tenant === name),
  }));
  return <Table label="tenants" columns={TENANTS} rows={rows} keyOf={(each) => each.name} empty="No tenant took part." />;
}

type WaitingRow = WhatIfRun["waiting"][number] & { side: string };

const WAITING: Column<WaitingRow>[] = [
  { name: "Site", value: (each) => each.side, cell: (each) => each.side },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "VMs", value: (each) => each.vms, cell: (each) => each.vms, numeric: true },
  {
    name: "Each",
    cell: (each) =>
      Object.entries(each.demand)
        .map(([name, much]) => `${noun(name)} ${amount(name, much)}`)
        .join(", "),
  },
  { name: "Longest wait", value: (each) => each.longest_wait_s, cell: (each) => duration(each.longest_wait_s), numeric: true },
];

function Waiting({ before, after }: { before: WhatIfRun; after: WhatIfRun }) {
  const rows = [
    ...before.waiting.map((each) => ({ ...each, side: "as it is" })),
    ...after.waiting.map((each) => ({ ...each, side: "what if" })),
  ];
  return (
    <Table
      label="what waits at the end"
      columns={WAITING}
      rows={rows}
      keyOf={(each) => `${each.side} ${each.tenant} ${JSON.stringify(each.demand)}`}
      empty="Nothing waits at the end."
    />
  );
}
