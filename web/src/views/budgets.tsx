/** What may be used in a month: a tenant's budgets, or those of the site. */
import { type Live, useLive, useRows } from "../api/live";
import type { Budget, BudgetUse } from "../api/types";
import { Bar, Command, Loading, Panel, ProblemMessage, State } from "../parts/basics";
import { decimals, moment, unitName } from "../words";

const DRAWN = 8;
/** Budgets are measured each minute. */
const MEASURED_EVERY_MS = 60_000;
const HOUR_MS = 3_600_000;

/** The budgets of a tenant and of the groups above it. */
export function TenantBudgets({ tenant }: { tenant: string }) {
  const path = `tenants/${encodeURIComponent(tenant)}/budget`;
  const { data, problem }: Live<Budget> = useLive<Budget>(path);
  return (
    <Panel title="Budget">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.limits.length === 0 && <p class="empty">No budget is set.</p>}
      <Rows rows={data?.limits ?? []} currency={data?.currency ?? null} tenant={tenant} />
      <Command line="fuga budget show" calls={[{ path }]} />
    </Panel>
  );
}

/** The budgets of the site of which the largest part is used. */
export function SiteBudgets() {
  const { data, problem } = useRows<BudgetUse>("budgets", [{}], MEASURED_EVERY_MS);
  const rows = [...(data?.rows ?? [])].sort((one, other) => part(other) - part(one));
  const spent = rows.filter((each) => each.state === "spent").length;
  return (
    <Panel title="Budgets">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data !== null && rows.length === 0 && <p class="empty">No budget is set.</p>}
      {rows.length > 0 && (
        <p>
          {spent} of {data?.more ? "the first " : ""}
          {rows.length} are used up.
        </p>
      )}
      <Rows rows={rows.slice(0, DRAWN)} currency={null} tenant={null} />
      <Command line="fuga budget list" calls={[{ path: "budgets" }]} />
    </Panel>
  );
}

function Rows({ rows, currency, tenant }: { rows: BudgetUse[]; currency: string | null; tenant: string | null }) {
  if (rows.length === 0) return null;
  return (
    <>
      <table class="bars">
        <tbody>
          {rows.map((each) => (
            <tr key={`${each.tenant} ${each.resource}`}>
              <th scope="row">
                {subject(each, currency)}
                {each.tenant !== tenant && <span class="hint"> of {each.tenant}</span>}
              </th>
              <td>
                <Bar part={part(each)} over={each.state === "spent"} label={`${each.used} of ${each.amount} used`} />
              </td>
              <td class="numeric">
                {short(each.used)} <span class="hint">of {short(each.amount)}</span>
              </td>
              <td>
                <State word={each.state} />
                <span class="why">{outlook(each)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="hint">
        When a budget is used up, what runs goes on, and new VMs wait for the next month (UTC).
      </p>
    </>
  );
}

const part = (budget: BudgetUse): number =>
  Number(budget.amount) ? Number(budget.used) / Number(budget.amount) : 1;

const short = (value: string): string => decimals(Number(value), Number(value) >= 100 ? 0 : 2);

function subject(budget: BudgetUse, currency: string | null): string {
  if (budget.resource === "cost") return currency === null ? "cost" : `cost in ${currency}`;
  return `${unitName(budget.resource)} hours`;
}

/** What will be used in the month if nothing changes, and when the budget ends. */
function outlook(budget: BudgetUse): string {
  const begin = new Date(`${budget.month}T00:00:00Z`);
  const end = Date.UTC(begin.getUTCFullYear(), begin.getUTCMonth() + 1);
  const hours = Math.max(0, (end - Date.parse(budget.measured_at)) / HOUR_MS);
  const forecast = Number(budget.used) + hours * Number(budget.per_hour);
  const ends = budget.spent_at === null ? "" : `; used up at ${moment(budget.spent_at)}`;
  return `at the present rate ${short(String(forecast))} in this month${ends}`;
}
