/** Changing how many VMs a request has, and how many with those that it borrows. */
import { useState } from "preact/hooks";
import { send } from "../api/client";
import { changed } from "../api/live";
import type { Request } from "../api/types";
import { range, shellWord } from "../words";
import { Command } from "./as_command";
import { CountField, MostField } from "./create_form";
import { ConfirmDialog, useSending } from "./dialogs";

export function ScaleButton({ request }: { request: Request }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Scale
      </button>
      {open && <Asks request={request} onClose={() => setOpen(false)} />}
    </>
  );
}

function Asks({ request, onClose }: { request: Request; onClose: () => void }) {
  const [many, setMany] = useState(String(request.count));
  const [most, setMost] = useState(request.max_count ? String(request.max_count) : "");
  const { busy, problem, run } = useSending();
  const path = `requests/${encodeURIComponent(request.id)}`;
  // Without an upper number the request borrows none.
  const body = { count: Number(many), max_count: most ? Number(most) : Number(many) };
  const wanted = range({ count: body.count, max_count: body.max_count > body.count ? body.max_count : null });
  const yes = async (): Promise<void> => {
    const done = await run(async () => {
      await send("PATCH", path, { body });
      changed();
    });
    if (done) onClose();
  };
  return (
    <ConfirmDialog
      title={`Scale ${request.name}?`}
      action="Scale"
      busy={busy}
      problem={problem}
      onYes={() => void yes()}
      onNo={onClose}
    >
      <p class="hint">With fewer VMs, the newest are deleted with their disks.</p>
      <CountField value={many} onInput={setMany} />
      <MostField value={most} min={Number(many)} onInput={setMost} />
      <Command line={`fuga scale ${shellWord(request.name)} -n ${wanted}`} calls={[{ method: "PATCH", path, body }]} />
    </ConfirmDialog>
  );
}
