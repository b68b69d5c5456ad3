/** Rounds as a table, and one round: what it decided, whose shares, and its games. */
import { useLive, useRows } from "../api/live";
import type { RoundDetail, RoundSummary } from "../api/types";
import { Bar, Command, Loading, Panel, Told } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { to } from "../route";
import { age, count, moment, percent } from "../words";

/** A row of `shares`: what one tenant held before and after. */
interface Share {
  tenant: string;
  before: number;
  after: number;
}

const number = (value: number | null): string => (value === null ? "-" : String(value));

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
];

export function RoundsView() {
  const { data, problem } = useRows<RoundSummary>("rounds", [{ limit: 200 }]);
  return (
    <>
      <h1>Rounds</h1>
      <Told problem={problem} />
      {data === null ? (
        problem === null && <Loading />
      ) : (
        <Table
          label="rounds"
          columns={COLUMNS}
          rows={data.rows}
          more={data.more}
          keyOf={(each) => String(each.number)}
          empty="No rounds yet: nothing was requested."
        />
      )}
      <Command line="fuga rounds" />
    </>
  );
}

export function RoundView(given: { number: string }) {
  const { data: round, problem } = useLive<RoundDetail>(`rounds/${encodeURIComponent(given.number)}`);
  if (round === null) return problem ? <Told problem={problem} /> : <Loading />;
  const shares = (round.shares as unknown as Share[]).filter((each) => each.after !== undefined);
  return (
    <>
      <h1>Round {round.number}</h1>
      <p class="lead">
        {moment(round.slot_start_at)}, {age(round.slot_start_at)} ago, by policy {round.policy}
        {round.decided_by === "fallback" && `, which failed: the fallback decided (${round.fallback_reason})`}.
        {round.placed !== null && ` ${count(round.placed, "VM")} placed, ${round.left_out ?? 0} left out.`}
      </p>
      <div class="panels">
        <Panel title="Shares before and after">
          {shares.length === 0 && <p class="empty">None to show.</p>}
          <table class="bars">
            <tbody>
              {shares.map((each) => (
                <tr key={each.tenant}>
                  <th scope="row">{each.tenant}</th>
                  <td>
                    <Bar
                      part={each.after}
                      mark={each.before}
                      label={`${percent(each.before)} before, ${percent(each.after)} after`}
                    />
                  </td>
                  <td class="numeric">
                    {percent(each.after)} <span class="hint">was {percent(each.before)}</span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
        <Panel title="Games between hosts">
          {(round.games ?? []).length === 0 && <p class="empty">None to show.</p>}
          <ul class="plain">
            {round.games?.map((each) => (
              <li key={each.game}>
                Game {each.game}: {count(each.players, "host")} took {count(each.vms, "VM")}; {SOLVED[each.solved] ?? each.solved}
                {each.certified && ", and a second computation found that no host gains by deviating"}.
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <Command line={`fuga rounds show ${round.number}`} />
      {round.replayable && <Command line={`fuga replay ${round.number}`} />}
    </>
  );
}

const SOLVED: Record<string, string> = {
  exact: "solved exactly, by backward induction",
  sweeps: "solved by Algorithm 1 of the paper and best-response sweeps",
  sequential: "solved by Algorithm 1 of the paper",
};
