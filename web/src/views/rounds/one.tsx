/** One round: what it decided, whose shares, its games, and how it can be seen again. */
import { useLive } from "../../api/live";
import { session } from "../../api/session";
import type { RoundDetail } from "../../api/types";
import { Bar, Command, Loading, Panel, ProblemMessage } from "../../parts/basics";
import { to } from "../../route";
import { age, count, moment, percent } from "../../words";
import { Replay, Second } from "./decided_again";
import { SOLVED } from "./play";

/** A row of `shares`: what one tenant held before and after. */
interface Share {
  tenant: string;
  before: number;
  after: number;
}

export function OneRound(given: { number: string }) {
  const { data: round, problem } = useLive<RoundDetail>(`rounds/${encodeURIComponent(given.number)}`);
  if (round === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  const shares = (round.shares as unknown as Share[]).filter((each) => each.after !== undefined);
  const again = session.isOperator && round.replayable;
  return (
    <>
      <h1>Round {round.number}</h1>
      <p class="lead">
        {moment(round.slot_start_at)}, {age(round.slot_start_at)} ago, by policy {round.policy}
        {round.decided_by === "fallback" && `, which failed: the fallback decided (${round.fallback_reason})`}.
        {round.placed !== null && ` ${count(round.placed, "VM")} placed, ${round.left_out ?? 0} not placed.`}
      </p>
      {again && (
        <p class="buttons">
          <a class="button primary" href={to("rounds", given.number, "game")}>
            Watch as theatre
          </a>
        </p>
      )}
      {session.isOperator && !round.replayable && (
        <p class="hint">What the round was decided on is no longer kept: it cannot be computed again.</p>
      )}
      <div class="panels">
        <Panel title="Shares before and after">
          {shares.length === 0 && <p class="empty">No shares to show.</p>}
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
          {(round.games ?? []).length === 0 && <p class="empty">No games to show.</p>}
          <ul class="plain">
            {round.games?.map((each) => (
              <li key={each.game}>
                Game {each.game}: {count(each.players, "host")} took {count(each.vms, "VM")}; solved {SOLVED[each.solved] ?? each.solved}
                {each.certified && ", and a second computation found that no host gains by deviating"}.
              </li>
            ))}
            {round.comparisons?.map((each) => (
              <li key={each.sentence}>Compared with filling alone: {each.sentence}.</li>
            ))}
          </ul>
        </Panel>
      </div>
      <Command line={`fuga rounds show ${round.number}`} calls={[{ path: `rounds/${round.number}` }]} />
      {again && !session.readOnly && (
        <div class="panels again">
          <Replay number={given.number} />
          <Second number={given.number} first={round.policy} />
        </div>
      )}
    </>
  );
}
