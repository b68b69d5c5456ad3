/** A round decided again: the same? And by another policy. */
import { useCallback, useState } from "preact/hooks";
import { send } from "../../api/client";
import { useRows } from "../../api/live";
import type { PolicySummary, ReplayResult, SecondDecision } from "../../api/types";
import { Command, Panel, ProblemMessage } from "../../parts/basics";
import { type Column, Table } from "../../parts/table";
import { to } from "../../route";
import { count, noun, percent, shellWord } from "../../words";
import { PATIENCE_MS, useOnce } from "./parts";

export function Replay({ number }: { number: string }) {
  const path = `rounds/${encodeURIComponent(number)}/replay`;
  const reading = useCallback(() => send<ReplayResult>("POST", path, { patienceMs: PATIENCE_MS }), [path]);
  const { data, problem, busy, ask } = useOnce(reading);
  return (
    <Panel title="Replay">
      <p>Decides the round again from what is stored, in a new process, and compares bit for bit.</p>
      <p class="buttons">
        <button type="button" disabled={busy} onClick={ask}>
          {busy ? "Replaying …" : "Replay"}
        </button>
      </p>
      <ProblemMessage problem={problem} />
      <div role="status">
        {data && (
          <div class={`message ${data.identical ? "good" : "bad"}`}>
            <p>
              {data.identical ? "Identical" : "It differs from what is stored"}: decided by {data.policy} in{" "}
              {data.seconds.toFixed(2)} s{data.cut && ", cut as it was"}.
            </p>
            {data.differences.length > 0 && (
              <ul>
                {data.differences.map((each) => (
                  <li key={each}>{each}</li>
                ))}
              </ul>
            )}
          </div>
        )}
      </div>
      <Command line={`fuga replay ${number}`} calls={[{ method: "POST", path }]} />
    </Panel>
  );
}

export function Second({ number, first }: { number: string; first: string }) {
  const { data: known } = useRows<PolicySummary>("rounds/policies", [{}]);
  const [name, setName] = useState("");
  const others = (known?.rows ?? []).filter((each) => each.name !== first);
  const policy = name || (others.find((each) => each.name === "best_fit_drfh") ?? others[0])?.name || "";
  const path = `rounds/${encodeURIComponent(number)}/second-policy`;
  const reading = useCallback(
    () => send<SecondDecision>("POST", path, { body: { policy }, patienceMs: PATIENCE_MS }),
    [path, policy],
  );
  const { data, problem, busy, ask } = useOnce(reading);
  return (
    <Panel title="Another policy for comparison">
      <p>Decides the same round by another policy, without effect.</p>
      <p class="buttons">
        <label class="one-line">
          Policy{" "}
          <select value={policy} onChange={(event) => setName(event.currentTarget.value)}>
            {others.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
        <button type="button" disabled={busy || !policy} onClick={ask}>
          {busy ? "Deciding …" : "Decide"}
        </button>
      </p>
      <p class="hint">{others.find((each) => each.name === policy)?.summary}</p>
      <ProblemMessage problem={problem} />
      <div role="status">{data && <Compared decision={data} />}</div>
      <Command
        line={`fuga replay ${number} --policy ${shellWord(policy)}`}
        calls={[{ method: "POST", path, body: { policy } }]}
      />
    </Panel>
  );
}

type Request = SecondDecision["requests"][number];

const COLUMNS: Column<Request>[] = [
  {
    name: "Request",
    value: (each) => each.name,
    cell: (each) => <a href={to("requests", each.id)}>{each.name}</a>,
  },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "Requested", value: (each) => each.asked, cell: (each) => each.asked, numeric: true },
  { name: "Placed", value: (each) => each.placed_first, cell: (each) => each.placed_first, numeric: true },
  { name: "By the other", value: (each) => each.placed_second, cell: (each) => each.placed_second, numeric: true },
  { name: "Same host", value: (each) => each.agreed, cell: (each) => each.agreed, numeric: true },
];

function Compared({ decision }: { decision: SecondDecision }) {
  const most = Math.max(0.01, ...decision.shares.map((each) => Math.max(each.first, each.second)));
  const scale = Math.min(1, most * 1.1);
  const measures: [string, (of: SecondDecision["first"]) => string][] = [
    ["VMs placed", (of) => String(of.placed)],
    ["not placed", (of) => String(of.left_out)],
    ["distance from fair", (of) => (of.fair_distance === null ? "-" : percent(of.fair_distance))],
    ...Object.keys(decision.first.used).map((resource): [string, (of: SecondDecision["first"]) => string] => [
      `${noun(resource)} in use`,
      (of) => percent(of.used[resource] ?? 0),
    ]),
  ];
  return (
    <>
      <table class="comparison">
        <thead>
          <tr>
            <td />
            <th scope="col">{decision.first_policy}</th>
            <th scope="col">{decision.policy}</th>
          </tr>
        </thead>
        <tbody>
          {measures.map(([name, of]) => (
            <tr key={name} class={of(decision.first) === of(decision.decided) ? undefined : "differs"}>
              <th scope="row">{name}</th>
              <td class="numeric">{of(decision.first)}</td>
              <td class="numeric">{of(decision.decided)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p>
        {count(decision.agreed, "VM")} on the same host.
        {decision.cut && " The budget of the round cut the other's search."}
      </p>
      <h3>Dominant shares after the round</h3>
      <ul class="shares pairs">
        {decision.shares.map((each) => (
          <li key={each.tenant}>
            <span class="name">{each.tenant}</span>
            <span
              class="track"
              role="img"
              aria-label={`${decision.first_policy} ${percent(each.first)}, ${decision.policy} ${percent(each.second)}`}
            >
              <span class="seg of-first" style={{ width: `${(each.first / scale) * 100}%` }} />
              <span class="seg of-second" style={{ width: `${(each.second / scale) * 100}%` }} />
            </span>
            <span class="much">
              {percent(each.first)} <span class="hint">/ {percent(each.second)}</span>
            </span>
          </li>
        ))}
      </ul>
      <p class="legend">
        <span class="chip of-first" /> {decision.first_policy} <span class="chip of-second" /> {decision.policy}
      </p>
      {decision.requests.length > 0 ? (
        <Table
          label="requests that differ"
          columns={COLUMNS}
          rows={decision.requests}
          keyOf={(each) => each.id}
          empty="None differs."
        />
      ) : (
        <p class="empty">Each request got the same VMs on the same hosts.</p>
      )}
    </>
  );
}
