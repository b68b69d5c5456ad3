/** One host: what it has, what is on it, and every step that an operator takes with it. */
import { useState } from "preact/hooks";
import { queryText } from "../../api/client";
import { useLive, useRows } from "../../api/live";
import { session } from "../../api/session";
import type { Host, HostDifference, HostReport, Move, Plan, Vm } from "../../api/types";
import { ConfirmButton } from "../../parts/dialogs";
import { Bar, Command, Fact, Loading, Panel, ProblemMessage, State } from "../../parts/basics";
import { History } from "../../parts/history";
import { type Column, Table } from "../../parts/table";
import { go, to } from "../../route";
import { age, amount, count, moment, noun, plain, readable, shellWord } from "../../words";
import { healthOfHost, stateOfHost } from "../hosts";
import { stateOf as stateOfVm, typeOf } from "../vms";
import { Actions } from "./host_actions";
import { Settings } from "./host_settings";
import "./site.css";

const OFTEN_MOVES = 50;
const NO_UUID = "00000000-0000-0000-0000-000000000000";

export function HostView({ name }: { name: string }) {
  const path = `hosts/${encodeURIComponent(name)}`;
  const { data: host, problem } = useLive<Host>(path);
  const vms = useRows<Vm>("vms", [{ host: name }]);
  if (host === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  const held = vms.data?.rows ?? null;
  return (
    <>
      <h1>
        {host.name} <State word={stateOfHost(host)} />
        {host.admin !== "active" && host.admin !== "retired" && (
          <>
            {" "}
            <State word={healthOfHost(host)} />
          </>
        )}
      </h1>
      <p class="lead">
        {host.labels.length > 0 ? host.labels.join(", ") : "No labels"}. {host.last_polled_at ? `Polled ${age(host.last_polled_at)} ago.` : "Not polled yet."}
        {host.missed_polls > 0 && ` ${count(host.missed_polls, "poll")} missed since.`}
      </p>
      <Troubles host={host} />
      {!session.readOnly && host.admin !== "retired" && (
        <Actions host={host} vms={held} more={vms.data?.more ?? false} onRetired={() => go("hosts")} />
      )}
      <Panel title="Resources">
        <Resources host={host} />
      </Panel>
      <div class="panels">
        <Latest host={host} />
        <Facts host={host} />
      </div>
      <Panel title={`VMs that hold a part of it${held ? ` (${vms.data?.more ? "more than " : ""}${held.length})` : ""}`}>
        <ProblemMessage problem={vms.problem} />
        {held === null ? vms.problem === null && <Loading /> : <Guests rows={held} more={vms.data?.more ?? false} />}
        <Command
          line={`fuga vms --host ${shellWord(host.name)}`}
          calls={[{ path: `vms${queryText({ limit: 500, host: host.name })}` }]}
        />
      </Panel>
      <div class="panels">
        <Moves host={host} />
        <Differences host={host} />
      </div>
      <History subject={host.id} name={host.name} />
      <Command line={`fuga host show ${shellWord(host.name)}`} calls={[{ path }, { path: `${path}/report` }]} />
    </>
  );
}

function Troubles({ host }: { host: Host }) {
  const notices = [
    host.last_error && host.health !== "up" ? host.last_error : null,
    host.backoff_until && Date.parse(host.backoff_until) > Date.now()
      ? `It gets no VMs until ${moment(host.backoff_until)}: ${count(host.failed_builds ?? 0, "build")} in a row failed here.`
      : null,
    host.pool_silent_since ? `Its pool has not answered since ${moment(host.pool_silent_since)}: it gets no VMs.` : null,
    host.returning_since ? `It answers since ${moment(host.returning_since)}, and is not yet clear of what it held.` : null,
    host.same_machine_as ? `It is the machine of host ${host.same_machine_as}: it gets no VMs, and its capacity does not count.` : null,
    host.found_machine_uuid ? `Another machine (${host.found_machine_uuid === NO_UUID ? "without a UUID" : host.found_machine_uuid}) answers in its place.` : null,
    host.fence
      ? `Fencing: ${host.fence.state}, requested by ${host.fence.requested_by}.${host.fence.last_error ? ` ${host.fence.last_error}` : ""}`
      : null,
    ...(host.warnings ?? []).map((each) => `${each[0]?.toUpperCase() ?? ""}${each.slice(1)}.`),
  ].filter((each): each is string => each !== null);
  if (notices.length === 0) return null;
  return (
    <ul class="message warn plain">
      {notices.map((each) => (
        <li key={each}>{plain(each)}</li>
      ))}
    </ul>
  );
}

function Resources({ host }: { host: Host }) {
  return (
    <div class="scrolls" tabIndex={0} role="region" aria-label="Resources">
      <table>
        <thead>
          <tr>
            <th>Resource</th>
            <th>Committed</th>
            <th class="numeric">of capacity</th>
            <th class="numeric">Free</th>
            <th class="numeric">Over-commit</th>
            <th class="numeric">Detected</th>
            <th class="numeric">Override</th>
            <th class="numeric">Reserved</th>
            <th class="numeric">Foreign</th>
          </tr>
        </thead>
        <tbody>
          {host.inventories.map((each) => {
            const said = (value: number | null): string => (value === null ? "-" : amount(each.resource, value));
            const part = each.capacity ? each.committed / each.capacity : each.committed ? 1 : 0;
            return (
              <tr key={each.resource}>
                <td data-name="Resource">{noun(each.resource)}</td>
                <td data-name="Committed" class="wide">
                  <Bar
                    part={part}
                    over={each.committed > each.capacity}
                    label={`${each.committed} of ${each.capacity} committed`}
                  />
                </td>
                <td data-name="of capacity" class="numeric">
                  {amount(each.resource, each.committed)} of {amount(each.resource, each.capacity)}
                </td>
                <td data-name="Free" class="numeric">{said(Math.max(0, each.capacity - each.committed))}</td>
                <td data-name="Over-commit" class="numeric">× {each.ratio_thousandths / 1000}</td>
                <td data-name="Detected" class="numeric">{said(each.detected)}</td>
                <td data-name="Override" class="numeric">{said(each.override)}</td>
                <td data-name="Reserved" class="numeric">{said(each.reserved)}</td>
                <td data-name="Foreign" class="numeric">{said(each.foreign)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Latest({ host }: { host: Host }) {
  const { data: report, problem } = useLive<HostReport>(`hosts/${encodeURIComponent(host.name)}/report`);
  const foreign = report?.domains.filter((each) => !each.assignment_id) ?? [];
  return (
    <Panel title="Latest report">
      {problem?.status === 404 ? <p class="empty">No poll has been answered yet.</p> : <ProblemMessage problem={problem} />}
      {report === null && problem === null && <Loading />}
      {report && (
        <>
          <dl>
            <Fact name="Polled" value={`${moment(report.polled_at)}, in ${report.took_ms} ms`} />
            <Fact name="Processors" value={report.cpu_busy_percent === null ? null : `${report.cpu_busy_percent.toFixed(0)} % busy`} />
            <Fact name="Memory" value={report.memory_used_mib === null ? null : `${amount("x_mib", report.memory_used_mib)} used`} />
            <Fact name="Pool" value={report.disk_used_gib === null ? null : `${amount("x_gib", report.disk_used_gib)} used`} />
            <Fact name="Addresses" value={report.addresses?.join(", ") || null} />
            <Fact
              name="Interfaces"
              value={Object.entries(report.interfaces ?? {}).map((each) => each.join(" ")).join(", ") || null}
            />
            <Fact name="Domains" value={`${report.domains.length}, ${foreign.length} of them foreign`} />
            <Fact name="Volumes" value={String(report.volumes.length)} />
          </dl>
          {foreign.length > 0 && (
            <ul class="plain">
              {foreign.slice(0, 20).map((each) => (
                <li key={each.uuid}>
                  <State word={each.state} /> {plain(each.name)}{" "}
                  <span class="hint">
                    {each.vcpus} vcpus, {amount("x_mib", each.memory_mib)}
                  </span>
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </Panel>
  );
}

function Facts({ host }: { host: Host }) {
  const [asks, setAsks] = useState(false);
  return (
    <Panel title="Settings">
      <dl>
        <Fact name="URI" value={host.uri} />
        <Fact name="Credential" value={host.credential} />
        <Fact name="Guests run by" value={host.domain_type} />
        <Fact name="Pool" value={host.shared_pool ? `${host.pool}, shared as ${host.shared_pool}` : host.pool} />
        <Fact name="Network" value={host.network} />
        <Fact name="Builds at a time" value={String(host.max_builds)} />
        <Fact name="Fence target" value={host.fence_target ?? null} />
        <Fact name="Confines guests by" value={host.security_model ?? null} />
        <Fact name="Machine" value={host.machine_uuid ?? null} />
        <Fact name="Registered" value={moment(host.created_at)} />
      </dl>
      {!session.readOnly && host.admin !== "retired" && (
        <p class="buttons">
          <button type="button" onClick={() => setAsks(true)}>
            Change settings
          </button>
        </p>
      )}
      {asks && <Settings host={host} onDone={() => setAsks(false)} />}
    </Panel>
  );
}

const GUESTS: Column<Vm>[] = [
  { name: "Name", value: (vm) => vm.name, cell: (vm) => <a href={to("vms", vm.id)}>{vm.name}</a> },
  { name: "Tenant", value: (vm) => vm.tenant, cell: (vm) => vm.tenant },
  { name: "Type", value: typeOf, cell: typeOf },
  { name: "State", value: stateOfVm, cell: (vm) => <State word={stateOfVm(vm)} /> },
  { name: "Address", value: (vm) => vm.address ?? "", cell: (vm) => vm.address ?? "-" },
  { name: "Moves to", value: (vm) => vm.moving_to ?? "", cell: (vm) => vm.moving_to ?? "-" },
];

function Guests({ rows, more }: { rows: Vm[]; more: boolean }) {
  return (
    <Table
      label="VMs of this host"
      columns={GUESTS}
      rows={rows}
      more={more}
      keyOf={(vm) => vm.id}
      empty="No VM holds a part of it."
    />
  );
}

function Moves({ host }: { host: Host }) {
  const { data, problem } = useRows<Move>("moves", [{ host: host.name, open: true, limit: OFTEN_MOVES }]);
  const plans = useRows<Plan>("plans", [{ state: "approved" }, { state: "proposed" }]);
  const emptied = plans.data?.rows.filter((each) => {
    const named = each.arguments["hosts"];
    return Array.isArray(named) && named.includes(host.name);
  });
  return (
    <Panel title="Moves under way">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.rows.length === 0 && !emptied?.length && <p class="empty">No VM moves from or to it.</p>}
      <ul class="plain">
        {emptied?.map((each) => (
          <li key={each.id}>
            <a href={to("plans", each.id)}>Plan to empty it</a>: {each.state}, {each.ended} of {count(each.moves, "move")} over
          </li>
        ))}
        {data?.rows.map((each) => (
          <li key={each.id}>
            <a href={to("vms", each.vm_id)}>{each.vm_name}</a> {each.from_host} → {each.to_host}{" "}
            <State word={each.state} />
            <span class="why">{plain(each.reason)}</span>
          </li>
        ))}
      </ul>
      <Command
        line={`fuga move list --host ${shellWord(host.name)}`}
        calls={[{ path: `moves${queryText({ host: host.name, open: true, limit: OFTEN_MOVES })}` }]}
      />
    </Panel>
  );
}

function Differences({ host }: { host: Host }) {
  const { data, problem } = useLive<{ items: HostDifference[] }>("differences", { host: host.name });
  return (
    <Panel title="Differences from the ledger">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.items.length === 0 && <p class="empty">None at the latest poll.</p>}
      <ul class="plain">
        {data?.items.map((each) => (
          <li key={`${each.difference} ${each.subject}`}>
            {plain(each.what)}: {plain(each.action)}
            <span class="why">{plain(each.why)}</span>
            {each.on_confirmation && !session.readOnly && (
              <ConfirmButton
                name="Repair"
                title={`Repair ${readable(each.difference)}?`}
                action="Repair"
                danger
                line="fuga doctor --hosts --repair"
                method="POST"
                path={`hosts/${encodeURIComponent(host.name)}/repair`}
                body={{ difference: each.difference, subject: each.subject }}
              >
                <p class="prose">{plain(each.what)}</p>
                <p>
                  On your decision: <strong>{plain(each.on_confirmation)}</strong>.
                </p>
              </ConfirmButton>
            )}
          </li>
        ))}
      </ul>
      <Command line="fuga doctor --hosts" calls={[{ path: `differences${queryText({ host: host.name })}` }]} />
    </Panel>
  );
}
