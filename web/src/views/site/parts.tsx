/** Small parts of operators' views. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem, send } from "../../api/client";
import { changed } from "../../api/live";
import { Told } from "../../parts/basics";
import { noun } from "../../words";

/** The call that a view or an action makes. */
export function Call({ line }: { line: string }) {
  return (
    <p class="command">
      <span>By the API:</span>
      <code>{line}</code>
    </p>
  );
}

/** One change after another; the first that is refused is told, and no other is tried. */
export function useSending(): {
  busy: boolean;
  problem: Problem | null;
  run: (doing: () => Promise<void>) => Promise<boolean>;
  clear: () => void;
} {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const run = async (doing: () => Promise<void>): Promise<boolean> => {
    setBusy(true);
    setProblem(null);
    try {
      await doing();
      return true;
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
      return false;
    } finally {
      setBusy(false);
      changed();
    }
  };
  return { busy, problem, run, clear: () => setProblem(null) };
}

/** A question with what follows from a yes; stays open, with the reason, if it is refused. */
export function Ask(given: {
  title: string;
  action: string;
  danger?: boolean;
  disabled?: boolean;
  busy: boolean;
  problem: Problem | null;
  children: ComponentChildren;
  onYes: () => void;
  onNo: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class="asks"
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        given.onNo();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          given.onYes();
        }}
      >
        <h2 id={title}>{given.title}</h2>
        {given.children}
        <Told problem={given.problem} />
        <p class="buttons">
          <button type="button" onClick={given.onNo}>
            Cancel
          </button>
          <button
            type="submit"
            class={given.danger ? "danger" : "primary"}
            disabled={given.busy || given.disabled === true}
          >
            {given.action}
          </button>
        </p>
      </form>
    </dialog>
  );
}

/** A button that asks, and then sends one call. */
export function AskingButton(given: {
  name: string;
  title: string;
  action: string;
  danger?: boolean;
  disabled?: boolean;
  method: "POST" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  children: ComponentChildren;
  onDone?: () => void;
}) {
  const [asks, setAsks] = useState(false);
  const sending = useSending();
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send(given.method, given.path, given.body === undefined ? {} : { body: given.body });
    });
    if (!done) return;
    setAsks(false);
    given.onDone?.();
  };
  return (
    <>
      <button
        type="button"
        class={given.danger ? "danger" : ""}
        disabled={given.disabled === true}
        onClick={() => {
          sending.clear();
          setAsks(true);
        }}
      >
        {given.name}
      </button>
      {asks && (
        <Ask
          title={given.title}
          action={given.action}
          danger={given.danger ?? false}
          busy={sending.busy}
          problem={sending.problem}
          onYes={() => void yes()}
          onNo={() => setAsks(false)}
        >
          {given.children}
        </Ask>
      )}
    </>
  );
}

/** The name of a resource with its unit: `memory (MiB)`. */
export function unitName(resource: string): string {
  const unit = /_(mib|gib)$/.exec(resource)?.[1];
  return unit ? `${noun(resource)} (${unit === "mib" ? "MiB" : "GiB"})` : noun(resource);
}

export const readable = (word: string): string => word.replaceAll("_", " ");
