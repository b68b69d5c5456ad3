/** Setting or removing one label of one or many VMs or requests. */
import { useState } from "preact/hooks";
import { send } from "../api/client";
import { shellWord } from "../words";
import { ActionButton, some } from "./action_button";
import { Command } from "./as_command";
import { Dialog } from "./dialogs";

interface Labelled {
  id: string;
  name: string;
}

export function LabelButton(given: { things: Labelled[]; path: "vms" | "requests"; onDone?: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Label{given.things.length > 1 ? ` ${given.things.length}` : ""}
      </button>
      {open && <Asks {...given} onClose={() => setOpen(false)} />}
    </>
  );
}

function Asks(given: { things: Labelled[]; path: string; onDone?: () => void; onClose: () => void }) {
  const { things, path } = given;
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const body = { labels: { [key.trim()]: value.trim() || null } };
  const word = shellWord(value.trim() ? `${key.trim()}=${value.trim()}` : `${key.trim()}-`);
  const whole = (each: Labelled): string => `${path}/${encodeURIComponent(each.id)}`;
  const done = (): void => {
    given.onClose();
    given.onDone?.();
  };
  return (
    <Dialog title="Set or remove a label" onClose={given.onClose}>
      <p class="names">{some(things.map((each) => each.name), ", ")}</p>
      <label>
        Key
        <input value={key} maxLength={63} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <label>
        Value <span class="hint">(empty removes the label)</span>
        <input value={value} maxLength={63} onInput={(event) => setValue(event.currentTarget.value)} />
      </label>
      {key.trim() && (
        <Command
          line={things.slice(0, 1).map((each) => `fuga label ${shellWord(each.name)} ${word}`).join()}
          calls={things.slice(0, 1).map((each) => ({ method: "PATCH", path: whole(each), body }))}
        />
      )}
      <p class="buttons">
        <button type="button" onClick={given.onClose}>
          Cancel
        </button>
        <ActionButton
          things={things}
          action={value.trim() ? "Set" : "Remove"}
          disabled={!key.trim()}
          nameOf={(each) => each.name}
          act={(each) => send("PATCH", whole(each), { body })}
          line=""
          call={(each) => ({ method: "PATCH", path: whole(each), body })}
          onDone={done}
        />
      </p>
    </Dialog>
  );
}
