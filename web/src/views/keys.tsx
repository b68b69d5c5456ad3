/** SSH keys that new VMs get. */
import { useState } from "preact/hooks";
import { send } from "../api/client";
import { session } from "../api/session";
import type { SshKey } from "../api/types";
import { CreateForm, Field } from "../parts/create_form";
import { DeleteButton } from "../parts/delete_button";
import { Listing } from "../parts/listing";
import { aged, type Column } from "../parts/table";
import { shellWord } from "../words";

const COLUMNS: Column<SshKey>[] = [
  { name: "Name", value: (key) => key.name, cell: (key) => key.name },
  { name: "Tenant", value: (key) => key.tenant, cell: (key) => key.tenant },
  { name: "Fingerprint", value: (key) => key.fingerprint, cell: (key) => <code>{key.fingerprint}</code> },
  aged((key) => key.created_at),
];

export function KeysView() {
  return (
    <Listing
      title="SSH keys"
      label="keys"
      path="ssh-keys"
      line="fuga key list"
      columns={COLUMNS}
      keyOf={(key) => key.id}
      nameOf={(key) => key.name}
      empty="No keys: how to get into a VM is up to its image."
      actions={
        session.readOnly
          ? undefined
          : (chosen, clear) => <DeleteButton things={chosen} path="ssh-keys" onDone={clear} />
      }
    >
      <p class="lead">New VMs let in whoever holds one of these keys.</p>
      {!session.readOnly && <AddKey />}
    </Listing>
  );
}

const NONE = { name: "", public_key: "", tenant: "" };

function AddKey() {
  const [typed, setTyped] = useState(NONE);
  const set = (change: Partial<typeof NONE>): void => setTyped({ ...typed, ...change });
  const body = {
    name: typed.name.trim(),
    public_key: typed.public_key.trim(),
    ...(session.isOperator ? { tenant: typed.tenant.trim() } : {}),
  };
  return (
    <CreateForm
      title="Add a key"
      content={body}
      ready={Boolean(body.name && body.public_key && (body.tenant ?? "x"))}
      make={async (key) => {
        await send("POST", "ssh-keys", { body, key });
        setTyped(NONE);
      }}
      line={`fuga key add ${shellWord(body.name || "NAME")} KEY.pub${body.tenant ? ` --tenant ${shellWord(body.tenant)}` : ""}`}
      calls={[{ method: "POST", path: "ssh-keys", body }]}
    >
      <Field name="Name" most={63} value={typed.name} onInput={(name) => set({ name })} />
      <Field
        name="Public key"
        hint="one line of a file such as id_ed25519.pub"
        most={16_384}
        value={typed.public_key}
        onInput={(public_key) => set({ public_key })}
      />
      {session.isOperator && <Field name="Tenant" most={63} value={typed.tenant} onInput={(tenant) => set({ tenant })} />}
    </CreateForm>
  );
}
