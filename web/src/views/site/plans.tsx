/** Plans of moves: proposed, compared before and after, approved, followed. For operators. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, newKey, send } from "../../api/client";
import { useLive, useNamesLike, useRows, useSettled } from "../../api/live";
import { session } from "../../api/session";
import type { Move, Plan, PlanMove, PlanMoves, Request, Vm } from "../../api/types";
import { ConfirmButton, useSending } from "../../parts/dialogs";
import { Bar, Command, Loading, Panel, ProblemMessage, State } from "../../parts/basics";
import { Listing } from "../../parts/listing";
import { aged, type Column, Table } from "../../parts/table";
import { go, to } from "../../route";
import { age, count, decimals, duration, moment, percent, plain, readable, shellWord, shortId as short } from "../../words";
import { staysOf, whyItStays } from "./preview";
import "./site.css";

/** While the control centre decides: that takes a second or two, and somebody waits. */
const LOOK_EVERY_MS = 1_000;

const KINDS = [
  ["evacuate", "Empty hosts", "Every VM of these hosts finds another place, where one takes it."],
  ["balance", "Balance", "Levels the load of hosts, as long as a move gains something."],
  ["pack", "Pack", "Empties as many hosts as possible."],
  ["repair", "Repair", "Keeps broken rules again, and relieves hosts with more than they have."],
  ["room", "Make room", "Lets a request that waits in, by the fewest GiB of moves."],
] as const;

const COLUMNS: Column<Plan>[] = [
  { name: "Plan", value: (each) => each.id, cell: (each) => <a href={to("plans", each.id)}>{short(each.id)}</a> },
  { name: "For", value: (each) => each.kind, cell: (each) => kindName(each.kind) },
  { name: "State", value: (each) => each.state, cell: (each) => <State word={each.state} /> },
  {
    name: "Moves over",
    value: (each) => each.moves,
    cell: (each) => <Progress plan={each} />,
  },
  { name: "Failed", value: (each) => each.failed, cell: (each) => each.failed, numeric: true },
  { name: "Not moved", value: (each) => each.not_moved.length, cell: (each) => each.not_moved.length, numeric: true },
  { name: "GiB", value: (each) => each.moved_gib, cell: (each) => decimals(each.moved_gib, 1), numeric: true },
  aged((each) => each.requested_at),
  { name: "Requested by", value: (each) => each.requested_by, cell: (each) => each.requested_by },
];

const kindName = (kind: string): string => KINDS.find(([each]) => each === kind)?.[1] ?? kind;

function Progress({ plan }: { plan: Plan }) {
  if (plan.moves === 0) return <>-</>;
  return (
    <span class="progress">
      <Bar part={plan.ended / plan.moves} label={`${plan.ended} of ${plan.moves} moves over`} />
      <span class="numeric">
        {plan.ended}/{plan.moves}
      </span>
    </span>
  );
}

export function PlansView() {
  return (
    <>
      <Listing
        title="Plans of moves"
        label="plans"
        path="plans"
        queries={[{ limit: 200 }]}
        line="fuga plan list"
        columns={COLUMNS}
        keyOf={(each) => each.id}
        empty="No plans yet."
      >
        {!session.readOnly && <Propose />}
      </Listing>
      <UnderWay />
    </>
  );
}

function Propose() {
  const [kind, setKind] = useState<string>("balance");
  const [hosts, setHosts] = useState("");
  const [request, setRequest] = useState("");
  const [part, setPart] = useState("");
  const search = useSettled(/^[a-z0-9._-]{1,63}$/.test(part) ? part : null, 300);
  const waiting = useRows<Request>(kind === "room" ? "requests" : null, [
    { state: "pending", limit: 200, search },
    { state: "partly_placed", limit: 200, search },
  ]).data;
  const like = useNamesLike(kind === "evacuate" ? "hosts" : null, /[^\s,]*$/.exec(hosts)?.[0] ?? "");
  const before = hosts.replace(/[^\s,]*$/, "");
  const sending = useSending();
  const named = hosts.split(/[\s,]+/).filter(Boolean);
  const body = useMemo(
    () => ({ kind, ...(kind === "evacuate" ? { hosts: named } : {}), ...(kind === "room" ? { request } : {}) }),
    [kind, hosts, request],
  );
  const key = useMemo(newKey, [JSON.stringify(body)]);
  const ready = kind === "evacuate" ? named.length > 0 : kind === "room" ? request !== "" : true;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    await sending.run(async () => {
      const made = await send<Plan>("POST", "plans", { body, key });
      go("plans", made.id);
    });
  };
  const requestName = waiting?.rows.find((each) => each.id === request)?.name ?? "REQUEST";
  const words = kind === "evacuate" ? ` ${named.map(shellWord).join(" ") || "HOST"}` : kind === "room" ? ` ${shellWord(requestName)}` : "";
  return (
    <form class="form propose" onSubmit={(event) => void submit(event)}>
      <div class="fields">
        <label>
          Propose a plan
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            {KINDS.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {kind === "evacuate" && (
          <label>
            Hosts <span class="hint">(names, separated by commas)</span>
            <input list="plan-hosts" value={hosts} onInput={(event) => setHosts(event.currentTarget.value)} />
            <datalist id="plan-hosts">
              {like.map((each) => <option key={each} value={before + each} />)}
            </datalist>
          </label>
        )}
        {kind === "room" && (waiting?.more || search) && (
          <label>
            Part of its name <span class="hint">(more wait than are listed)</span>
            <input value={part} onInput={(event) => setPart(event.currentTarget.value.trim().toLowerCase())} />
          </label>
        )}
        {kind === "room" && (
          <label>
            Request that waits
            <select value={request} onChange={(event) => setRequest(event.currentTarget.value)}>
              <option value="">choose one</option>
              {waiting?.rows.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.name} of {each.tenant}: {count(each.vms_wanted - each.vms_placed, "VM")}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <p class="hint">
        {KINDS.find(([each]) => each === kind)?.[2]} Nothing moves before you approve what is proposed.
      </p>
      <ProblemMessage problem={sending.problem} />
      <p class="buttons">
        <button type="submit" class="primary" disabled={sending.busy || !ready}>
          Propose
        </button>
      </p>
      <Command line={`fuga plan ${kind}${words}`} calls={[{ method: "POST", path: "plans", body }]} />
    </form>
  );
}

// ---- moves under way ------------------------------------------------------------

const MOVES: Column<Move>[] = [
  { name: "VM", value: (each) => each.vm_name, cell: (each) => <a href={to("vms", each.vm_id)}>{each.vm_name}</a> },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "From", value: (each) => each.from_host, cell: (each) => <a href={to("hosts", each.from_host)}>{each.from_host}</a> },
  { name: "To", value: (each) => each.to_host, cell: (each) => <a href={to("hosts", each.to_host)}>{each.to_host}</a> },
  { name: "How", value: (each) => each.kind, cell: (each) => each.kind },
  { name: "State", value: (each) => each.state, cell: (each) => <State word={each.state} /> },
  {
    name: "Copied",
    value: (each) => copied(each) ?? -1,
    cell: (each) => {
      const part = copied(each);
      return part === null ? "-" : (
        <span class="progress">
          <Bar part={part} label={`${percent(part)} copied`} />
          <span class="numeric">{left(each)}</span>
        </span>
      );
    },
  },
  { name: "Reason", value: (each) => each.reason, cell: (each) => plain(each.reason) },
  {
    name: "Action",
    cell: (each) =>
      session.readOnly || each.cancelled_by !== null ? (
        each.cancelled_by && "asked to end"
      ) : (
        <ConfirmButton
          name="Cancel"
          title={`Cancel the move of ${each.vm_name}?`}
          action="Cancel the move"
          danger
          line={`fuga move cancel ${short(each.id)}`}
          method="POST"
          path={`moves/${each.id}/cancel`}
          body={{}}
        >
          <p>The VM stays on {each.from_host}, and runs on. If it has arrived by then, it stays there.</p>
        </ConfirmButton>
      ),
  },
];

const copied = (move: Move): number | null =>
  move.total_bytes ? 1 - (move.remaining_bytes ?? move.total_bytes) / move.total_bytes : null;

function left(move: Move): string {
  if (!move.rate_bytes_s || move.remaining_bytes === null) return percent(copied(move) ?? 0);
  return `${duration(move.remaining_bytes / move.rate_bytes_s)} left`;
}

function UnderWay() {
  const { data, problem } = useRows<Move>("moves", [{ open: true }]);
  return (
    <Panel title="Moves under way">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data && (
        <Table
          label="moves under way"
          columns={MOVES}
          rows={data.rows}
          more={data.more}
          keyOf={(each) => each.id}
          empty="No VM moves."
        />
      )}
      <Command line="fuga move list" calls={[{ path: "moves?open=true&limit=500" }]} />
    </Panel>
  );
}

// ---- one plan -------------------------------------------------------------------

/** Of a measure: how it is called, written, and whether more of it is better (0: neither). */
const MEASURES: [string, string, (value: number) => string, number][] = [
  ["potential", "Potential", (value) => decimals(value, 4), 1],
  ["fairness_distance", "Off fair", percent, -1],
  ["mean_skewness", "Mean skewness", (value) => decimals(value, 4), -1],
  ["hosts_in_use", "Hosts in use", String, 0],
  ["moved_gib", "GiB moved", (value) => decimals(value, 1), 0],
];

export function PlanView({ id }: { id: string }) {
  const path = `plans/${encodeURIComponent(id)}`;
  const { data: plan, problem, again } = useLive<Plan>(path);
  const { data: listed, again: listAgain } = useLive<PlanMoves>(`${path}/moves`);
  const moves = listed?.items ?? null;
  const state = plan?.state;
  useEffect(() => {
    if (state !== "pending") return listAgain(); // its moves have come with its decision
    const timer = setInterval(() => document.hidden || again(), LOOK_EVERY_MS);
    return () => clearInterval(timer);
  }, [state]);
  if (plan === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  const hosts = plan.arguments["hosts"];
  return (
    <>
      <h1>
        {kindName(plan.kind)}
        {Array.isArray(hosts) && `: ${hosts.slice(0, 4).join(", ")}${hosts.length > 4 ? ", …" : ""}`}{" "}
        <State word={plan.state} />
      </h1>
      <p class="lead">
        Plan {short(plan.id)}, requested by {plan.requested_by} {age(plan.requested_at)} ago.
        {plan.approved_by && ` Approved by ${plan.approved_by}.`}
        {plan.ended_at && ` Over since ${moment(plan.ended_at)}${took(plan)}.`}
      </p>
      {plan.state === "pending" && <p class="message" role="status">The control centre has not decided it yet.</p>}
      {plan.last_error && <p class={`message ${plan.state === "failed" ? "bad" : "warn"}`}>{plain(plan.last_error)}</p>}
      {plan.cut && <p class="message warn">Its budget ended before it was through: there may be better moves.</p>}
      {!session.readOnly && <Steps plan={plan} />}
      {(plan.state === "approved" || plan.state === "done") && plan.moves > 0 && (
        <Panel title="Progress">
          <Progress plan={plan} />
          <p class="hint">
            {plan.ended - plan.failed} moved, {plan.failed} failed or refused, {plan.moves - plan.ended} to go
            {remaining(plan)}.
          </p>
        </Panel>
      )}
      <LetIn plan={plan} />
      {plan.before && (
        <Panel title="Before and after">
          {plan.ended_at && plan.failed > 0 && <p>As proposed; {plan.failed} of {plan.moves} moves failed.</p>}
          <div class="scrolls" tabIndex={0} role="region" aria-label="Measures">
          <table class="measures">
            <thead>
              <tr>
                <th>Measure</th>
                <th class="numeric">Before</th>
                <th class="numeric">After</th>
                <th class="numeric">Change</th>
              </tr>
            </thead>
            <tbody>
              {MEASURES.map(([key, name, said, better]) => (
                <Measure key={key} name={name} said={said} better={better} before={plan.before?.[key]} after={plan.after?.[key]} />
              ))}
            </tbody>
          </table>
          </div>
          {plan.effect && <p class="effect">{plan.effect}</p>}
        </Panel>
      )}
      {moves && moves.length > 0 && <Waves moves={moves} />}
      {moves?.length === 0 && plan.state !== "pending" && plan.state !== "failed" && (
        <p class="empty">No move is useful.</p>
      )}
      <Stays plan={plan} />
      <Command line={`fuga plan show ${short(plan.id)}`} calls={[{ path }, { path: `${path}/moves` }]} />
    </>
  );
}

function took(plan: Plan): string {
  if (!plan.approved_at || !plan.ended_at) return "";
  return `, ${duration((Date.parse(plan.ended_at) - Date.parse(plan.approved_at)) / 1000)} after its approval`;
}

/** How long it may last, by what it has done so far. */
function remaining(plan: Plan): string {
  if (plan.state !== "approved" || plan.ended === 0 || !plan.approved_at) return "";
  const each = (Date.now() - Date.parse(plan.approved_at)) / plan.ended;
  return `, about ${duration((each * (plan.moves - plan.ended)) / 1000)} at this pace`;
}

function Steps({ plan }: { plan: Plan }) {
  const over = plan.moves - plan.ended;
  return (
    <div class="buttons" role="group" aria-label="Actions">
      {plan.state === "proposed" && (
        <ConfirmButton
          name="Approve"
          title="Carry this plan out?"
          action="Approve"
          line={`fuga plan approve ${short(plan.id)}`}
          method="POST"
          path={`plans/${plan.id}/approve`}
          body={{}}
        >
          <p>
            {count(plan.moves, "VM")} move{plan.moves === 1 ? "s" : ""} in {count(plan.waves, "wave")}, with{" "}
            {decimals(plan.moved_gib, 1)} GiB. Guests run on and stand still for a moment; what is no longer possible when
            its turn comes is left out.
          </p>
        </ConfirmButton>
      )}
      {["pending", "proposed", "approved"].includes(plan.state) && (
        <ConfirmButton
          name="Cancel"
          title="End this plan?"
          action="End the plan"
          danger
          line={`fuga plan cancel ${short(plan.id)}`}
          method="POST"
          path={`plans/${plan.id}/cancel`}
          body={{}}
        >
          <p>
            {plan.state === "approved"
              ? `${count(over, "move")} are not over: those under way go on, no others begin. What has moved stays there.`
              : "Nothing has moved, and nothing will."}
          </p>
        </ConfirmButton>
      )}
    </div>
  );
}

function Measure(given: {
  name: string;
  said: (value: number) => string;
  better: number;
  before: unknown;
  after: unknown;
}) {
  const { before, after, said } = given;
  const known = typeof before === "number" && typeof after === "number";
  const change = known ? after - before : 0;
  const kind = Math.abs(change) < 1e-9 || given.better === 0 ? "" : change * given.better > 0 ? "better" : "worse";
  return (
    <tr>
      <th scope="row">{given.name}</th>
      <td data-name="Before" class="numeric">{typeof before === "number" ? said(before) : "-"}</td>
      <td data-name="After" class="numeric">{typeof after === "number" ? said(after) : "-"}</td>
      <td data-name="Change" class={`numeric ${kind}`}>
        {known ? (Math.abs(change) < 1e-9 ? "same" : `${change > 0 ? "+" : "−"}${said(Math.abs(change))}`) : "-"}
        {kind && ` (${kind})`}
      </td>
    </tr>
  );
}

function LetIn({ plan }: { plan: Plan }) {
  const admitted = plan.admitted as {
    hosts: { host: string; count: number }[];
    still_waits: { count: number; reason: string } | null;
    in_the_way?: Record<string, number> | null;
  } | null;
  if (admitted === null) return null;
  const inTheWay = Object.entries(admitted.in_the_way ?? {}).map(([why, vms]) => `${vms} ${readable(why)}`);
  return (
    <p class={`message ${admitted.still_waits || plan.failed ? "warn" : "good"}`}>
      {admitted.hosts.length
        ? `${plan.failed ? "Was to let in" : "Lets in"} ${admitted.hosts.map((each) => `${each.count} on ${each.host}`).join(", ")}.`
        : "No moves let this request in."}
      {admitted.hosts.length > 0 && plan.failed > 0 && ` ${plan.failed} of its moves failed, so no room is kept for the request.`}
      {admitted.still_waits && ` ${count(admitted.still_waits.count, "VM")} wait as before: ${readable(admitted.still_waits.reason)}.`}
      {inTheWay.length > 0 && ` VMs on the hosts where it could be: ${inTheWay.join(", ")}.`}
    </p>
  );
}

const OF_WAVE: Column<PlanMove>[] = [
  { name: "Wave", value: (each) => each.wave, cell: (each) => each.wave + 1, numeric: true },
  { name: "VM", value: (each) => each.vm_name, cell: (each) => <a href={to("vms", each.vm_id)}>{each.vm_name}</a> },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "From", value: (each) => each.from_host, cell: (each) => <a href={to("hosts", each.from_host)}>{each.from_host}</a> },
  { name: "To", value: (each) => each.to_host, cell: (each) => <a href={to("hosts", each.to_host)}>{each.to_host}</a> },
  { name: "Why", value: (each) => each.why, cell: (each) => readable(each.why) },
  { name: "GiB", value: (each) => each.transfer_mib, cell: (each) => decimals(each.transfer_mib / 1024, 1), numeric: true },
  {
    name: "State",
    value: stateOfMove,
    cell: (each) => (
      <>
        <State word={stateOfMove(each)} />
        {each.refused && <span class="why">{plain(each.refused)}</span>}
      </>
    ),
  },
];

function stateOfMove(move: PlanMove): string {
  if (move.refused) return "refused";
  return move.state ?? "planned";
}

function Waves({ moves }: { moves: PlanMove[] }) {
  const waves = new Set(moves.map((each) => each.wave)).size;
  return (
    <Panel title={`${count(moves.length, "move")} in ${count(waves, "wave")}`}>
      <Table
        label="moves of the plan"
        columns={OF_WAVE}
        rows={moves}
        keyOf={(each) => String(each.position)}
        empty="None."
      />
    </Panel>
  );
}

function Stays({ plan }: { plan: Plan }) {
  const stays = staysOf(plan);
  const names = useNames(stays.slice(0, NAMED).map((each) => each.vm));
  if (stays.length === 0) return null;
  return (
    <Panel title={`${count(stays.length, "VM")} without another place`}>
      <ul class="plain">
        {stays.slice(0, NAMED).map((each) => (
          <li key={each.vm}>
            <a href={to("vms", each.vm)}>{names.get(each.vm) ?? short(each.vm)}</a>: {whyItStays(each)}
          </li>
        ))}
        {stays.length > NAMED && <li>and {stays.length - NAMED} more</li>}
      </ul>
    </Panel>
  );
}

const NAMED = 100;

/** Names of VMs, read once and one after another: a plan may leave many where they are. */
function useNames(ids: string[]): ReadonlyMap<string, string> {
  const [names, setNames] = useState<ReadonlyMap<string, string>>(new Map());
  const joined = ids.join(" ");
  useEffect(() => {
    let over = false;
    const read = async (): Promise<void> => {
      for (const id of joined.split(" ").filter(Boolean)) {
        const vm = await get<Vm>(`vms/${id}`).catch(() => null); // it may be gone
        if (over) return;
        if (vm !== null) setNames((now) => new Map(now).set(id, vm.name));
      }
    };
    void read();
    return () => {
      over = true;
    };
  }, [joined]);
  return names;
}
