/** The caller's own token, and what it may; operators see all tokens. */
import { session } from "../api/session";
import type { Token } from "../api/types";
import { Command, Fact, Panel, State } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { Listing } from "../parts/listing";
import type { Column } from "../parts/table";
import { age, moment } from "../words";

const stateOf = (token: Token): string => {
  if (token.revoked_at) return "revoked";
  return token.expires_at && Date.parse(token.expires_at) < Date.now() ? "expired" : "active";
};

const COLUMNS: Column<Token>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => each.name },
  { name: "Of", value: (each) => each.tenant ?? "", cell: (each) => each.tenant ?? "an operator" },
  {
    name: "May",
    value: (each) => (each.read_only ? "read" : "change"),
    cell: (each) => (each.read_only ? "read" : "read and change"),
  },
  { name: "State", value: stateOf, cell: (each) => <State word={stateOf(each)} /> },
  { name: "Expires", value: (each) => each.expires_at ?? "", cell: (each) => moment(each.expires_at) },
  {
    name: "Last used",
    value: (each) => each.last_used_at ?? "",
    cell: (each) => (each.last_used_at ? `${age(each.last_used_at)} ago` : "never"),
  },
];

export function TokenView() {
  const own = session.caller.value;
  if (session.isOperator) {
    return (
      <Listing
        title="Tokens"
        label="tokens"
        path="tokens"
        line="fuga token list"
        columns={COLUMNS}
        keyOf={(each) => each.id}
        nameOf={(each) => each.name}
        empty="No tokens."
        actions={
          session.readOnly ? undefined : (chosen, clear) => <DeleteButton things={chosen} path="tokens" onDone={clear} />
        }
      >
        <p class="lead">
          This page uses the token <strong>{own?.name}</strong>. To make one, use the command, which prints its secret
          once: <code>fuga token create</code>.
        </p>
      </Listing>
    );
  }
  if (own === null) return <p class="empty">Nobody is logged in.</p>;
  return (
    <>
      <h1>Your token</h1>
      <Panel title={own.name}>
        <dl>
          {COLUMNS.slice(1).map((column) => (
            <Fact key={column.name} name={column.name} value={column.cell(own)} />
          ))}
          <Fact name="Created" value={moment(own.created_at)} />
        </dl>
        <p class="hint">Operators make, renew and revoke tokens.</p>
        <Command line="fuga env" calls={[{ path: "token" }]} />
      </Panel>
    </>
  );
}
