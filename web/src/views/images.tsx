/** Images that VMs start from; operators add and delete them. */
import { useRef, useState } from "preact/hooks";
import { queryText, send, upload } from "../api/client";
import { session } from "../api/session";
import type { Image } from "../api/types";
import { CreateForm, Field } from "../parts/create_form";
import { Bar, State } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { Listing } from "../parts/listing";
import { aged, type Column } from "../parts/table";
import { amount, percent, plain, shellWord } from "../words";

const size = (bytes: number | null): string => (bytes === null ? "-" : amount("_mib", Math.ceil(bytes / 2 ** 20)));

const COLUMNS: Column<Image>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => each.name },
  { name: "Revision", value: (each) => each.revision, cell: (each) => each.revision, numeric: true },
  {
    name: "State",
    value: (each) => (each.held_at ? "held" : each.state),
    cell: (each) => (
      <>
        <State word={each.held_at ? "held" : each.state} />
        {(each.last_error ?? each.held_reason) && <span class="why">{plain(each.last_error ?? each.held_reason ?? "")}</span>}
      </>
    ),
  },
  {
    name: "Size",
    value: (each) => each.size_bytes ?? each.received_bytes,
    cell: (each) => size(each.size_bytes ?? each.received_bytes),
    numeric: true,
  },
  { name: "Disk", value: (each) => each.virtual_size_bytes ?? 0, cell: (each) => size(each.virtual_size_bytes), numeric: true },
  { name: "Seed", value: (each) => each.seed_kind, cell: (each) => each.seed_kind },
  { name: "Signed by", value: (each) => each.signed_by ?? "", cell: (each) => each.signed_by ?? "-" },
  aged((each) => each.created_at),
];

export function ImagesView() {
  const may = session.isOperator && !session.readOnly;
  return (
    <Listing
      title="Images"
      label="images"
      path="images"
      line="fuga image list"
      columns={COLUMNS}
      keyOf={(each) => each.id}
      nameOf={(each) => `${each.name}@${each.revision}`}
      empty="No images: VMs start from the base volume of their host."
      actions={
        may
          ? (chosen, clear) => (
              <DeleteButton
                things={chosen.map(({ id, name, revision }) => ({ id, name: `${name}@${revision}` }))}
                path="images"
                onDone={clear}
              />
            )
          : undefined
      }
    >
      {may && (
        <>
          <FromUrl />
          <FromFile />
        </>
      )}
    </Listing>
  );
}

const NONE = { name: "", url: "", sha256: "", format: "qcow2", seed_kind: "nocloud" };
type Typed = typeof NONE;

function Formats({ typed, set }: { typed: Typed; set: (change: Partial<Typed>) => void }) {
  return (
    <>
      <label>
        Format
        <select value={typed.format} onChange={(event) => set({ format: event.currentTarget.value })}>
          <option>qcow2</option>
          <option>raw</option>
        </select>
      </label>
      <label>
        Seed <span class="hint">(how guests learn name, keys and address)</span>
        <select value={typed.seed_kind} onChange={(event) => set({ seed_kind: event.currentTarget.value })}>
          <option>nocloud</option>
          <option>none</option>
        </select>
      </label>
    </>
  );
}

function FromUrl() {
  const [typed, setTyped] = useState(NONE);
  const set = (change: Partial<Typed>): void => setTyped({ ...typed, ...change });
  const { name, url, sha256, format, seed_kind } = typed;
  const body = { name: name.trim(), url: url.trim(), sha256: sha256.trim(), format, seed_kind };
  return (
    <CreateForm
      title="Add from a URL"
      content={body}
      ready={Boolean(body.name && body.url && body.sha256)}
      make={async (key) => {
        await send("POST", "images", { body, key });
        setTyped(NONE);
      }}
      line={`fuga image add ${shellWord(body.name || "NAME")} --from ${shellWord(body.url || "URL")} --sha256 ${shellWord(body.sha256 || "HEX")} --format ${format} --seed ${seed_kind}`}
      calls={[{ method: "POST", path: "images", body }]}
    >
      <Field name="Name" most={63} value={name} onInput={(name) => set({ name })} />
      <Field name="URL" hint="FUGA_IMAGE_URLS must allow it" most={2048} value={url} onInput={(url) => set({ url })} />
      <Field name="SHA-256" most={64} value={sha256} onInput={(sha256) => set({ sha256 })} />
      <Formats typed={typed} set={set} />
    </CreateForm>
  );
}

function FromFile() {
  const [typed, setTyped] = useState(NONE);
  const set = (change: Partial<Typed>): void => setTyped({ ...typed, ...change });
  const [file, setFile] = useState<File | null>(null);
  const [sent, setSent] = useState<number | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const name = typed.name.trim();
  const query = queryText({ name, format: typed.format, seed_kind: typed.seed_kind, source: file?.name });
  return (
    <CreateForm
      title="Upload a file"
      content={[query, file?.size, file?.lastModified]}
      ready={Boolean(name && file)}
      make={async (key) => {
        if (file === null) return;
        try {
          await upload(`images/upload${query}`, file, key, setSent);
        } finally {
          setSent(null);
        }
        setTyped(NONE);
        setFile(null);
        if (input.current) input.current.value = "";
      }}
      line={`fuga image add ${shellWord(name || "NAME")} ${shellWord(file?.name ?? "FILE")} --format ${typed.format} --seed ${typed.seed_kind}`}
      calls={[{ method: "POST", path: `images/upload${query}`, file: file?.name ?? "FILE" }]}
    >
      <Field name="Name" most={63} value={typed.name} onInput={(name) => set({ name })} />
      <label>
        File
        <input ref={input} type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
      </label>
      <Formats typed={typed} set={set} />
      {sent !== null && file && (
        <p role="status">
          {percent(sent / file.size)} sent <Bar part={sent / file.size} label={`${percent(sent / file.size)} sent`} />
        </p>
      )}
    </CreateForm>
  );
}
