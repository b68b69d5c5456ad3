/** How the site does: who leads, what is late, who was heard; its settings, and who changed what. */
import { useEffect, useState } from "preact/hooks";
import { get, Problem, type Query, queryText } from "../../api/client";
import { useLive, useReading, useSlowly } from "../../api/live";
import { session } from "../../api/session";
import type { AuditEntry, HostMap, OverdueWork, Page, ProcessStatus, SettingInForce, SlotLoop, Status } from "../../api/types";
import { ConfirmButton } from "../../parts/dialogs";
import { Command, Loading, Panel, ProblemMessage, State } from "../../parts/basics";
import { aged, type Column, Table } from "../../parts/table";
import { to } from "../../route";
import { age, count, duration, moment, plain, shellWord } from "../../words";
import { stateOf } from "./colours";
import "./site.css";

const READ_MAP_EVERY_MS = 30_000;

export function SiteView() {
  const { data: status, problem } = useLive<Status>("status");
  return (
    <>
      <h1>Site</h1>
      <ProblemMessage problem={problem} />
      {status === null ? problem === null && <Loading /> : <Leads status={status} />}
      <div class="panels">
        <Findings status={status} />
        <Loop />
      </div>
      {status && <Processes rows={status.processes} />}
      <Audit />
      <Settings />
    </>
  );
}

function Leads({ status }: { status: Status }) {
  return (
    <>
      <p class="lead">
        {status.leader
          ? `${status.leader} leads, since ${moment(status.leads_since)}. `
          : "Nobody leads: no slot is decided. "}
        {status.last_slot_at ? `The last slot was decided ${age(status.last_slot_at)} ago` : "No slot was decided yet"}
        {status.slot_length_s ? `; one lasts ${duration(status.slot_length_s)}.` : "."}
      </p>
      <Command line="fuga status" calls={[{ path: "status" }]} />
    </>
  );
}

// ---- what is wrong --------------------------------------------------------------

function Findings({ status }: { status: Status | null }) {
  const { data: map } = useSlowly<HostMap>("host-map", READ_MAP_EVERY_MS);
  const troubled = map ? hostsInTrouble(map) : [];
  const oldest = status?.oldest_unbuilt_at;
  const late = status?.late ?? [];
  const disks = status?.disks ?? [];
  return (
    <Panel title="What is wrong">
      {status && late.length === 0 && disks.length === 0 && map && troubled.length === 0 && !status.paused && (
        <p class="message good">Nothing is late, and every active host takes VMs.</p>
      )}
      <ul class="plain">
        {late.map((each) => (
          <li key={each.message}>
            <State word="late" /> {lateWords(each)}
          </li>
        ))}
        {disks.map((each) => (
          <li key={each}>
            <State word="full" /> {each}
          </li>
        ))}
        {status?.paused && (
          <li>
            <State word="paused" /> the slot loop is paused: requests wait
          </li>
        )}
        {troubled.map(([state, hosts]) => (
          <li key={state}>
            <State word={state} /> {count(hosts.length, "host")}:{" "}
            {hosts.slice(0, 5).map((name, index) => (
              <span key={name}>
                {index > 0 && ", "}
                <a href={to("hosts", name)}>{name}</a>
              </span>
            ))}
            {hosts.length > 5 && (
              <>
                , <a href="#/map">and {hosts.length - 5} more</a>
              </>
            )}
          </li>
        ))}
        {oldest && (
          <li>
            <State word="pending" /> the oldest placed VM has waited {age(oldest)} for a worker
          </li>
        )}
      </ul>
      <p class="hint">
        The command compares the sums of the ledger, images, credentials and certificates as well, on the machine where
        it runs.
      </p>
      <Command line="fuga doctor" calls={[{ path: "status" }, { path: "host-map" }]} />
    </Panel>
  );
}

function lateWords(late: OverdueWork): string {
  return `${late.message}${late.since ? `, since ${moment(late.since)}` : ""}`;
}

function hostsInTrouble(map: HostMap): [string, string[]][] {
  const found = new Map<string, string[]>();
  map.names.forEach((name, host) => {
    const state = stateOf(map, host);
    if (["up", "draining", "maintenance"].includes(state)) return;
    found.set(state, [...(found.get(state) ?? []), name]);
  });
  return [...found].sort((a, b) => b[1].length - a[1].length);
}

// ---- the slot loop --------------------------------------------------------------

function Loop() {
  const { data: loop, problem } = useLive<SlotLoop>("slot-loop");
  const [reason, setReason] = useState("");
  const runs = loop?.state === "running";
  return (
    <Panel title="Slot loop">
      <ProblemMessage problem={problem} />
      {loop === null && problem === null && <Loading />}
      {loop && (
        <>
          <p>
            <State word={loop.state} />{" "}
            {loop.changed_at
              ? `since ${moment(loop.changed_at)}, by ${loop.changed_by}${loop.reason ? `: ${plain(loop.reason)}` : ""}`
              : "It was never paused."}
          </p>
          {!session.readOnly && (
            <div class="pause">
              <label>
                Reason {runs && <span class="hint">(tenants whose requests wait read it)</span>}
                <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
              </label>
              <p class="buttons">
                {runs ? (
                  <ConfirmButton
                    name="Pause"
                    title="Pause the slot loop?"
                    action="Pause"
                    danger
                    disabled={!reason.trim()}
                    line={`fuga pause ${shellWord(reason.trim())}`}
                    method="POST"
                    path="slot-loop/pause"
                    body={{ reason: reason.trim() }}
                    onDone={() => setReason("")}
                  >
                    <p>No round places anything until you resume it: requests gather and wait. VMs that are placed are
                      created, switched and deleted as ever.</p>
                  </ConfirmButton>
                ) : (
                  <ConfirmButton
                    name="Resume"
                    title="Resume the slot loop?"
                    action="Resume"
                    line="fuga resume"
                    method="POST"
                    path="slot-loop/resume"
                    body={reason.trim() ? { reason: reason.trim() } : {}}
                    onDone={() => setReason("")}
                  >
                    <p>The next slot is decided, with all that has gathered.</p>
                  </ConfirmButton>
                )}
              </p>
            </div>
          )}
        </>
      )}
      <Command line={runs ? "fuga pause REASON" : "fuga resume"} calls={[{ path: "slot-loop" }]} />
    </Panel>
  );
}

// ---- processes ------------------------------------------------------------------

const PROCESSES: Column<ProcessStatus>[] = [
  { name: "Process", value: (each) => each.kind, cell: (each) => each.kind },
  { name: "Name", value: (each) => each.name, cell: (each) => each.name },
  { name: "State", value: (each) => String(each.late), cell: (each) => <State word={each.late ? "late" : "running"} /> },
  { name: "Heard", value: (each) => each.heartbeat_at, cell: (each) => `${age(each.heartbeat_at)} ago`, numeric: true },
  aged((each) => each.started_at, "Runs for"),
  { name: "Trouble", value: (each) => each.trouble ?? "", cell: (each) => (each.trouble ? plain(each.trouble) : "-") },
];

function Processes({ rows }: { rows: ProcessStatus[] }) {
  return (
    <Panel title="Processes">
      {rows.length === 0 ? (
        <p class="empty">No process was heard.</p>
      ) : (
        <Table
          label="processes"
          columns={PROCESSES}
          rows={rows}
          keyOf={(each) => `${each.kind} ${each.name}`}
          empty=""
        />
      )}
    </Panel>
  );
}

// ---- audit ----------------------------------------------------------------------

const AUDIT: Column<AuditEntry>[] = [
  { name: "When", value: (each) => each.at, cell: (each) => moment(each.at) },
  { name: "Call", value: (each) => each.method, cell: (each) => `${each.method} ${each.path}` },
  { name: "Status", value: (each) => each.status ?? 0, cell: (each) => each.status ?? "none", numeric: true },
  { name: "Token", value: (each) => each.token ?? "", cell: (each) => each.token ?? "-" },
  { name: "Tenant", value: (each) => each.tenant ?? "", cell: (each) => each.tenant ?? "-" },
  { name: "Address", value: (each) => each.address, cell: (each) => each.address },
  {
    name: "Refused",
    value: (each) => refusals(each),
    cell: (each) => (refusals(each) ? `${refusals(each)} times` : "-"),
    numeric: true,
  },
];

const refusals = (entry: AuditEntry): number => Object.values(entry.refusals ?? {}).reduce((a, b) => a + b, 0);

const SINCE = [
  ["", "any time"],
  ["3600", "the last hour"],
  ["86400", "the last day"],
  ["604800", "the last week"],
] as const;
const OPTION: Record<string, string> = { 3600: "1h", 86400: "1d", 604800: "7d" };

/** Calls that a page keeps which is open for days. */
const MAX_CALLS = 2_000;

/** The newest calls, and below them the older ones that somebody has asked for, if both meet. */
function joined(before: Page<AuditEntry> | null, newest: Page<AuditEntry>): Page<AuditEntry> {
  if (before === null || before.items.length <= newest.items.length) return newest;
  const ids = new Set(newest.items.map((each) => each.id));
  const older = before.items.filter((each) => !ids.has(each.id));
  if (older.length === before.items.length || older.length > MAX_CALLS) return newest;
  return { items: [...newest.items, ...older], next: before.next };
}

function Audit() {
  const [token, setToken] = useState("");
  const [tenant, setTenant] = useState("");
  const [method, setMethod] = useState("");
  const [refused, setRefused] = useState(false);
  const [since, setSince] = useState("86400");
  const [kept, keep] = useState<Page<AuditEntry> | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const filters = { token, tenant, method, refused: refused || null };
  const query = (): Query => ({
    ...filters,
    limit: 100,
    since: since ? new Date(Date.now() - Number(since) * 1000).toISOString() : null,
  });
  const first = useReading(JSON.stringify([filters, since]), () => get<Page<AuditEntry>>("audit", query()));
  const { data } = first;
  useEffect(() => {
    setProblem(null);
    keep((before) => data && joined(before, data));
  }, [data]);
  const further = async (cursor: string): Promise<void> => {
    try {
      const page = await get<Page<AuditEntry>>("audit", { ...query(), cursor });
      setProblem(null);
      // Unless other filters were chosen meanwhile.
      keep((now) => (now?.next === cursor ? { items: [...now.items, ...page.items], next: page.next } : now));
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
    }
  };
  const options = [
    ...(token ? [`--token ${shellWord(token)}`] : []),
    ...(tenant ? [`--tenant ${shellWord(tenant)}`] : []),
    ...(method ? [`--method ${method}`] : []),
    ...(refused ? ["--refused"] : []),
    ...(since ? [`--since ${OPTION[since]}`] : []),
  ];
  return (
    <Panel title="Audit: who changed what, and who tried to">
      <div class="filters">
        <label>
          Token
          <input value={token} onChange={(event) => setToken(event.currentTarget.value.trim())} />
        </label>
        <label>
          Tenant
          <input value={tenant} onChange={(event) => setTenant(event.currentTarget.value.trim())} />
        </label>
        <label>
          Method
          <select value={method} onChange={(event) => setMethod(event.currentTarget.value)}>
            <option value="">any</option>
            {["POST", "PATCH", "PUT", "DELETE"].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          Since
          <select value={since} onChange={(event) => setSince(event.currentTarget.value)}>
            {SINCE.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={refused} onChange={(event) => setRefused(event.currentTarget.checked)} /> refused
          only
        </label>
      </div>
      <ProblemMessage problem={first.problem ?? problem} />
      {kept === null ? (
        first.problem === null && <Loading />
      ) : (
        <Table
          label="calls"
          columns={AUDIT}
          rows={kept.items}
          keyOf={(each) => String(each.id)}
          empty="No call matches."
        />
      )}
      {kept !== null && kept.next !== null && (
        <p class="buttons">
          <button type="button" onClick={() => void further(kept.next ?? "")}>
            Older calls
          </button>
        </p>
      )}
      <Command line={["fuga audit", ...options].join(" ")} calls={[{ path: `audit${queryText(query())}` }]} />
    </Panel>
  );
}

// ---- settings -------------------------------------------------------------------

const SETTINGS: Column<SettingInForce>[] = [
  {
    name: "Setting",
    value: (each) => each.name,
    cell: (each) => (
      <>
        <code>{each.name}</code>
        {each.description && <span class="why">{each.description}</span>}
      </>
    ),
  },
  { name: "Value", value: (each) => each.value ?? "", cell: (each) => each.value ?? "-" },
  { name: "From", value: (each) => (each.source === "default" ? "z" : each.source), cell: (each) => each.source },
];

function Settings() {
  const [shown, setShown] = useState(false);
  const { data, problem } = useLive<Page<SettingInForce>>("settings");
  const own = data?.items.filter((each) => each.source !== "default") ?? [];
  return (
    <Panel title="Settings in force">
      <p class="hint">Of the API that answers this page; secrets are masked. Workers and monitors may have others.</p>
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data && (
        <Table
          label="settings"
          columns={SETTINGS}
          rows={shown ? data.items : own}
          keyOf={(each) => each.name}
          empty="Each setting has its default."
        />
      )}
      <label class="check">
        <input type="checkbox" checked={shown} onChange={(event) => setShown(event.currentTarget.checked)} /> Show
        settings that nobody has set as well
      </label>
      <Command line="fuga doctor" calls={[{ path: "settings" }]} />
    </Panel>
  );
}
