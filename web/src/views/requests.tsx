/** Requests as a table, and one request: why it waits, and where its VMs are. */
import { useLive } from "../api/live";
import { session } from "../api/session";
import type { Request, RequestExplanation, Reservation } from "../api/types";
import { Command, Loading, Panel, ProblemMessage, State } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { History } from "../parts/history";
import { LabelButton } from "../parts/label_button";
import { ScaleButton } from "../parts/scale_button";
import { Listing } from "../parts/listing";
import { aged, type Column } from "../parts/table";
import { go, route, to } from "../route";
import { useStore } from "../store";
import { endOf, typeOf } from "./vms";
import { amount, count, noun, percent, range, shellWord, waitsFor } from "../words";

const COLUMNS: Column<Request>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => <a href={to("requests", each.id)}>{each.name}</a> },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "Type", value: typeOf, cell: typeOf },
  { name: "State", value: (each) => each.state, cell: (each) => <State word={each.state} /> },
  {
    name: "Running",
    value: (each) => each.vms_running,
    cell: (each) => `${each.vms_running} of ${range(each)}`,
    numeric: true,
  },
  {
    name: "Waits for",
    value: (each) => each.waiting?.reason ?? "",
    cell: (each) =>
      [
        each.vms_placed < each.vms_wanted && LIVE.includes(each.state) ? waitsFor(each) : "",
        each.vms_leaving > 0 ? `${each.vms_leaving}: being removed` : "",
      ]
        .filter(Boolean)
        .join(", ") || "-",
  },
  aged((each) => each.created_at),
];

const LIVE = ["pending", "partly_placed", "placed"];
const ENDED = ["released", "cancelled", "expired"];

export function RequestsView() {
  const { query } = useStore(route);
  const ended = query.has("ended");
  return (
    <Listing
      title="Requests"
      label="requests"
      path="requests"
      searches
      queries={(ended ? ENDED : LIVE).map((state) => ({ state }))}
      line={ended ? "fuga requests --all" : "fuga requests"}
      columns={COLUMNS}
      keyOf={(each) => each.id}
      nameOf={(each) => each.name}
      empty={ended ? "No request has ended." : "No requests."}
      actions={
        session.readOnly || ended
          ? undefined
          : (chosen, clear) => (
              <>
                <LabelButton things={chosen} path="requests" />
                <DeleteButton things={chosen} path="requests" onDone={clear} />
              </>
            )
      }
    >
      <p class="buttons">
        {!session.readOnly && (
          <a class="primary button" href="#/ask">
            Request VMs
          </a>
        )}
        <a class="button" href={ended ? "#/requests" : "#/requests?ended"}>
          {ended ? "Show those in force" : "Show those that have ended"}
        </a>
      </p>
    </Listing>
  );
}

export function RequestView({ id }: { id: string }) {
  const path = `requests/${encodeURIComponent(id)}`;
  const { data: request, problem } = useLive<Request>(path);
  const why = useLive<RequestExplanation>(`${path}/explanation`);
  if (request === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  return (
    <>
      <h1>
        {request.name} <State word={request.state} />
      </h1>
      <p class="lead">
        {request.max_count ? `${range(request)} VMs` : count(request.count, request.spot ? "spot VM" : "VM")} of type {request.vm_type} for tenant {request.tenant}:{" "}
        {request.vms_placed} placed{request.vms_borrowed > 0 && ` (${request.vms_borrowed} of them borrowed)`}, {request.vms_running} running
        {request.vms_leaving > 0 && `, ${request.vms_leaving} being removed`}.
        {request.reservation && (
          <>
            {" "}
            It draws on <Reserved id={request.reservation} />.
          </>
        )}
      </p>
      {request.warnings.length > 0 && (
        <ul class="message warn plain">
          {request.warnings.map((each) => (
            <li key={each}>{each}.</li>
          ))}
        </ul>
      )}
      {!session.readOnly && LIVE.includes(request.state) && (
        <div class="buttons">
          <ScaleButton request={request} />
          <LabelButton things={[request]} path="requests" />
          <DeleteButton things={[request]} path="requests" onDone={() => go("requests")} />
        </div>
      )}
      <div class="panels">
        <Panel title="Why">
          <ProblemMessage problem={why.problem} />
          {why.data === null && why.problem === null && <Loading />}
          {why.data && <Why explanation={why.data} />}
          <Command line={`fuga explain ${shellWord(request.name)}`} calls={[{ path: `${path}/explanation` }]} />
        </Panel>
        <Panel title="VMs">
          {why.data?.vms.length === 0 && <p class="empty">None is placed yet.</p>}
          <ul class="plain">
            {why.data?.vms.map((vm) => (
              <li key={vm.vm}>
                <a href={to("vms", vm.vm)}>{vm.name}</a>{" "}
                <State word={vm.unknown_since ? "unknown" : vm.observed} /> {vm.host ? `on ${vm.host}` : ""}
                {vm.borrowed && ", borrowed"}
                {vm.ends_at && <span class="why">{endOf(vm)}</span>}
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <History subject={request.id} name={request.name} />
    </>
  );
}

/** The reservation by its name; until that is read, or if it is gone, by what it is. */
function Reserved({ id }: { id: string }) {
  const { data } = useLive<Reservation>(`reservations/${encodeURIComponent(id)}`);
  return <a href={to("reservations", id)}>{data ? `the reservation ${data.name}` : "a reservation"}</a>;
}

function settledText({ wanted, leaving }: RequestExplanation): string {
  if (wanted > 0) return "All its VMs are placed.";
  return leaving > 0 ? "It wants no VM any more; its last ones are being removed." : "It wants no VM any more.";
}

function Why({ explanation }: { explanation: RequestExplanation }) {
  const waits = explanation.waiting;
  if (waits === null) return <p class="prose">{explanation.unbuilt ?? settledText(explanation)}</p>;
  return (
    <>
      <p class="prose">
        {count(waits.count, "VM")} {waits.count === 1 ? "waits" : "wait"}: {waits.message}.
      </p>
      {explanation.estimate && <p class="prose">{explanation.estimate.message}</p>}
      <ul>
        {waits.shortages.map((each) => (
          <li key={each.resource}>
            {noun(each.resource)} is short on {each.hosts_short} of {count(each.hosts, "host")}, by{" "}
            {amount(each.resource, each.missing)} at least
            {each.nearest_host && ` (on ${each.nearest_host})`}
          </li>
        ))}
        {waits.quotas?.map((each) => (
          <li key={`${each.tenant} ${each.resource}`}>
            the quota of {each.tenant}: {amount(each.resource, each.used)} of {amount(each.resource, each.limit)}{" "}
            {noun(each.resource)} used, {amount(each.resource, each.needed)} needed
          </li>
        ))}
        {waits.share && (
          <li>
            {explanation.tenant} holds {percent(waits.share.held)}; its fair share is {percent(waits.share.fair)}
          </li>
        )}
      </ul>
      {(waits.would_help?.length ?? 0) > 0 && (
        <>
          <h3>What would help</h3>
          <ul>
            {waits.would_help?.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
