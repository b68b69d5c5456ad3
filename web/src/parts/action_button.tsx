/** One action on one or many things: asked first where it cannot be undone, then call by call. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Problem } from "../api/client";
import { changed } from "../api/live";
import { type Call, Command } from "./as_command";
import { ConfirmDialog } from "./dialogs";

/** So many calls at once: the API refuses crowds. */
const AT_ONCE = 4;
/** Retries of a call that the API had no time for. */
const TRIES = 5;

export interface Given<T> {
  things: T[];
  /** What the button says, and the one in the question. */
  action: string;
  nameOf: (thing: T) => string;
  act: (thing: T) => Promise<unknown>;
  line: string;
  call: (thing: T) => Call;
  /** The question; without it nothing is asked. */
  title?: string;
  children?: ComponentChildren;
  danger?: boolean;
  disabled?: boolean;
  onDone?: (() => void) | undefined;
}

export function ActionButton<T>(given: Given<T>) {
  const { things, nameOf } = given;
  const [asks, setAsks] = useState(false);
  const [left, setLeft] = useState<number | null>(null);
  const [failed, setFailed] = useState<string[]>([]);
  const names = things.map(nameOf);

  const run = async (): Promise<void> => {
    const queue = [...things];
    const failures: string[] = [];
    setLeft(queue.length);
    setFailed([]);
    const take = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        try {
          await patiently(() => given.act(next as T));
        } catch (problem) {
          if (!(problem instanceof Problem)) throw problem;
          failures.push(`${nameOf(next)}: ${problem.message}`);
        }
        setLeft((n) => (n ?? 1) - 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, take));
    setLeft(null);
    setFailed(failures);
    changed();
    if (failures.length === 0) given.onDone?.();
  };

  return (
    <>
      <button
        type="button"
        class={given.danger ? "danger" : ""}
        disabled={left !== null || given.disabled}
        onClick={() => (given.title ? setAsks(true) : void run())}
      >
        {left === null ? `${given.action}${things.length > 1 ? ` ${things.length}` : ""}` : `${left} to go`}
      </button>
      {failed.length > 0 && (
        <ul class="message bad" role="alert">
          {failed.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
      {asks && (
        <ConfirmDialog
          title={given.title ?? ""}
          action={given.action}
          danger={given.danger ?? false}
          onNo={() => setAsks(false)}
          onYes={() => {
            setAsks(false);
            void run();
          }}
        >
          <p class="names">{some(names, ", ")}</p>
          {given.children}
          <Command line={given.line} calls={things.slice(0, 1).map(given.call)} />
        </ConfirmDialog>
      )}
    </>
  );
}

/** Names, of many the first. */
export function some(names: string[], between = " "): string {
  return names.slice(0, 20).join(between) + (names.length > 20 ? `${between}…` : "");
}

/** Act, again after a while where the API asks to wait. */
async function patiently(act: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await act();
      return;
    } catch (problem) {
      const waits = problem instanceof Problem && [429, 503].includes(problem.status);
      if (!waits || tries === TRIES) throw problem;
      await new Promise((done) => setTimeout(done, ((problem as Problem).retryAfterS ?? 1) * 1000));
    }
  }
}
