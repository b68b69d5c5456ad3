/** What a caller holds, what is theirs, what runs and what waits. */
import { useMemo } from "preact/hooks";
import { type Live, useLive, useRows, useSlowly } from "../api/live";
import { session } from "../api/session";
import type { Counts, Quota, Request, RequestExplanation, RoundSummary, TenantShare, Status } from "../api/types";
import { Bar, Command, Loading, Panel, ProblemMessage, State } from "../parts/basics";
import { type Line, Steps } from "../parts/steps";
import { to } from "../route";
import { age, amount, count, duration, noun, percent, waitsFor } from "../words";
import { SiteBudgets, TenantBudgets } from "./budgets";

/** Hundreds of rows for a line, or a sum of all there are: not at each event. */
const LISTED_EVERY_MS = 15_000;

export function Overview() {
  const tenant = session.caller.value?.tenant ?? null;
  const shares = useSlowly<{ items: TenantShare[] }>("shares", LISTED_EVERY_MS);
  const counts = useSlowly<Counts>("counts", LISTED_EVERY_MS);
  return (
    <>
      <h1>{tenant ? `Tenant ${tenant}` : "The whole site"}</h1>
      <Next />
      <div class="panels flowing">
        {tenant && <OverTime tenant={tenant} shares={shares.data?.items ?? null} />}
        <Shares shares={shares} />
        {tenant && <Quotas tenant={tenant} />}
        {tenant ? <TenantBudgets tenant={tenant} /> : <SiteBudgets />}
        <Waits counts={counts} />
        <Runs counts={counts} />
      </div>
      <Command
        line={tenant ? `fuga tenant show ${tenant}` : "fuga status"}
        calls={[
          { path: "shares" },
          ...(tenant ? [{ path: "rounds?limit=200" }, { path: `tenants/${tenant}/quota` }] : [{ path: "status" }]),
        ]}
      />
    </>
  );
}

function Next() {
  const { data } = useLive<Status>("status");
  if (data === null) return <Loading />;
  const slot = data.slot_length_s;
  return (
    <p class="lead">
      {slot ? `A slot lasts ${duration(slot)}. ` : ""}
      {data.last_round !== null
        ? `The last round is number ${data.last_round}, ${age(data.last_round_at)} ago.`
        : "There was no round yet."}{" "}
      {!session.readOnly && (
        <a class="primary button" href="#/ask">
          Request VMs
        </a>
      )}
    </p>
  );
}

interface Share {
  tenant: string;
  before: number;
  after: number;
  target: number | null;
}

/** What rounds stored: the share, and what was fair then. Slots that repeat leave no round. */
function OverTime({ tenant, shares }: { tenant: string; shares: TenantShare[] | null }) {
  const { data, problem } = useRows<RoundSummary>("rounds", [{ limit: 200 }], LISTED_EVERY_MS);
  const entitlement = shares?.find((each) => each.name === tenant)?.entitlement;
  const lines = useMemo(() => {
    const rounds = (data?.rows ?? []).toReversed().flatMap((round) => {
      const own = (round.shares as unknown as Share[]).find((each) => each.tenant === tenant);
      return own ? [{ at: Date.parse(round.slot_start_at), own }] : [];
    });
    const first = rounds[0]?.at;
    return [
      { name: "share", kind: "held", points: rounds.map(({ at, own }) => [at, own.after]) },
      {
        name: "fair share",
        kind: "fair",
        points: rounds.flatMap(({ at, own }) => (own.target === null ? [] : [[at, own.target]])),
      },
      {
        name: "entitled to",
        kind: "entitled",
        points: entitlement === undefined || first === undefined ? [] : [[first, entitlement]],
      },
    ] as Line[];
  }, [data, entitlement, tenant]);
  return (
    <Panel title="Share over time">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data !== null && lines[0]?.points.length === 0 && (
        <p class="empty">No round has decided for you yet.</p>
      )}
      {(lines[0]?.points.length ?? 0) > 0 && (
        <Steps title={`Dominant share of ${tenant} and its fair share, by rounds`} lines={lines} until={Date.now()} />
      )}
      <p class="hint">
        The fair share is what a round aimed at for you, among those who requested something then.
      </p>
    </Panel>
  );
}

/** Rows of shares that are drawn; the view of tenants has all of them. */
const DRAWN = 50;

function Shares({ shares }: { shares: Live<{ items: TenantShare[] }> }) {
  const rows = shares.data?.items;
  return (
    <Panel title="Share">
      <ProblemMessage problem={shares.problem} />
      <p class="hint">
        The bar is the dominant share: the largest part held of any resource. The mark is what the tenant is
        entitled to when all request more than fits.
      </p>
      {rows === undefined && shares.problem === null && <Loading />}
      {rows?.length === 0 && <p class="empty">There are no tenants yet.</p>}
      <table class="bars">
        <tbody>
          {rows?.slice(0, DRAWN).map((each) => (
            <tr key={each.name}>
              <th scope="row">
                {each.name}
                {each.is_group && <span class="hint"> (group)</span>}
              </th>
              <td>
                <Bar
                  part={each.share}
                  mark={each.entitlement}
                  label={`holds ${percent(each.share)}, entitled to ${percent(each.entitlement)}`}
                />
              </td>
              <td class="numeric">
                {percent(each.share)} <span class="hint">of {percent(each.entitlement)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {(rows?.length ?? 0) > DRAWN && <a href="#/tenants">All {rows?.length} tenants and groups</a>}
    </Panel>
  );
}

function Quotas({ tenant }: { tenant: string }) {
  const { data, problem } = useLive<Quota>(`tenants/${encodeURIComponent(tenant)}/quota`);
  return (
    <Panel title="Quota">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.limits.length === 0 && <p class="empty">No limit is set.</p>}
      <table class="bars">
        <tbody>
          {data?.limits.map((each) => (
            <tr key={`${each.tenant} ${each.resource}`}>
              <th scope="row">
                {noun(each.resource)}
                {each.tenant !== tenant && <span class="hint"> of {each.tenant}</span>}
              </th>
              <td>
                <Bar
                  part={each.limit ? each.requested / each.limit : 1}
                  over={each.requested >= each.limit}
                  label={`${each.requested} of ${each.limit} requested`}
                />
              </td>
              <td class="numeric">
                {amount(each.resource, each.requested)} <span class="hint">of {amount(each.resource, each.limit)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

const SHOWN = 8;
/** Estimates cost the API a calculation each. */
const ESTIMATED = 4;
const ESTIMATED_EVERY_MS = 60_000;

/** How long a request may wait, as `fuga explain` has it. */
function Until({ id }: { id: string }) {
  const { data } = useSlowly<RequestExplanation>(
    `requests/${encodeURIComponent(id)}/explanation`,
    ESTIMATED_EVERY_MS,
  );
  return data?.estimate ? <span class="why">{data.estimate.message}</span> : null;
}

function Waits({ counts }: { counts: Live<Counts> }) {
  const { data, problem } = useRows<Request>("requests", [
    { state: "pending", limit: 100 },
    { state: "partly_placed", limit: 100 },
  ]);
  const waiting = sum(counts.data?.vms.filter((each) => !each.placed && each.state === "absent"));
  const requests = sum(counts.data?.requests.filter((each) => each.state !== "placed"));
  return (
    <Panel title="Waiting">
      <ProblemMessage problem={problem} />
      {waiting > 0 && (
        <p>
          {count(waiting, "VM")} of {count(requests, "request")} {waiting === 1 ? "waits" : "wait"} for a place.
        </p>
      )}
      {data === null && problem === null && <Loading />}
      {data?.rows.length === 0 && <p class="empty">Nothing waits.</p>}
      <ul class="plain">
        {data?.rows.slice(0, SHOWN).map((each, index) => (
          <li key={each.id}>
            <a href={to("requests", each.id)}>{each.name}</a>{" "}
            {count(each.vms_wanted - each.vms_placed, "VM")} of type {each.vm_type}
            {session.isOperator && <span class="hint"> for {each.tenant}</span>}
            <span class="why">{waitsFor(each)}</span>
            {index < ESTIMATED && <Until id={each.id} />}
          </li>
        ))}
      </ul>
      {(data?.rows.length ?? 0) > SHOWN && <a href="#/requests">All requests</a>}
    </Panel>
  );
}

function Runs({ counts }: { counts: Live<Counts> }) {
  const { data, problem } = counts;
  const rows = data?.vms.filter((each) => each.placed) ?? [];
  return (
    <Panel title="Placed">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data !== null && rows.length === 0 && <p class="empty">No VM has a place.</p>}
      <ul class="plain">
        {rows.map((each) => (
          <li key={`${each.vm_type} ${each.spot} ${each.borrowed} ${each.state}`}>
            <State word={each.state === "absent" ? "starting" : each.state} /> {count(each.count, each.spot ? "spot VM" : each.borrowed ? "borrowed VM" : "VM")} of type {each.vm_type}
          </li>
        ))}
      </ul>
      {rows.length > 0 && <a href="#/vms">{sum(rows) === 1 ? "The VM" : `All ${sum(rows)} VMs`}</a>}
      <Command line="fuga counts" calls={[{ path: "counts" }]} />
    </Panel>
  );
}

const sum = (rows: readonly { count: number }[] = []): number => rows.reduce((all, each) => all + each.count, 0);
