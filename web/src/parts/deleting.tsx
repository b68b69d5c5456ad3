/** Deleting one or many things, after a question. */
import { useState } from "preact/hooks";
import { Problem, send } from "../api/client";
import { changed } from "../api/live";
import { count } from "../words";
import { Command, Confirm } from "./basics";

interface Deletable {
  id: string;
  name: string;
}

/** So many calls at once: the API refuses crowds. */
const AT_ONCE = 4;

export function Deleting(given: {
  things: Deletable[];
  path: "vms" | "requests";
  what: string;
  onDone?: () => void;
}) {
  const { things, path, what } = given;
  const [asks, setAsks] = useState(false);
  const [left, setLeft] = useState<number | null>(null);
  const [failed, setFailed] = useState<string[]>([]);
  const names = things.map((each) => each.name);

  const remove = async (): Promise<void> => {
    const queue = [...things];
    const told: string[] = [];
    setLeft(queue.length);
    const take = async (): Promise<void> => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        try {
          await send("DELETE", `${path}/${next.id}`);
        } catch (problem) {
          if (!(problem instanceof Problem)) throw problem;
          told.push(`${next.name}: ${problem.message}`);
        }
        setLeft((n) => (n ?? 1) - 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, take));
    setLeft(null);
    setFailed(told);
    changed();
    if (told.length === 0) given.onDone?.();
  };

  return (
    <>
      <button type="button" class="danger" disabled={left !== null} onClick={() => setAsks(true)}>
        {left === null ? `Delete ${things.length > 1 ? things.length : ""}` : `${left} to go`}
      </button>
      {failed.length > 0 && (
        <ul class="told bad" role="alert">
          {failed.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
      {asks && (
        <Confirm
          title={`Delete ${count(things.length, what)}?`}
          action="Delete"
          onAnswer={(yes) => {
            setAsks(false);
            if (yes) void remove();
          }}
        >
          <p class="names">{names.slice(0, 20).join(", ") + (names.length > 20 ? ", …" : "")}</p>
          <p>
            {path === "requests" ? "All their VMs end, and their disks are gone." : "Their disks are gone."}
          </p>
          <Command line={`fuga rm ${names.slice(0, 20).join(" ")}`} />
        </Confirm>
      )}
    </>
  );
}
