/** Questions before something is changed: what follows from a yes, and the command and call that do the same. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem, send } from "../api/client";
import { changed } from "../api/live";
import { Command } from "./as_command";
import { ProblemMessage } from "./basics";

/** Over the page: keyboard and screen readers stay in it, and are back where they were when it ends. */
export function Dialog(given: {
  title: string;
  onClose: () => void;
  /** Escape does not end it: a call is under way. */
  stays?: boolean;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const gone = useRef(false);
  const title = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element?.showModal();
    // Not what can be copied, which stands before it: Enter alone must not end a VM.
    element?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      gone.current = true;
      element?.close();
      // A dialog that left the page with its view gave the focus back to nobody.
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
      // The button may be gone or disabled by now.
      if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class="asks"
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        if (!given.stays) given.onClose();
      }}
      onClose={() => {
        // Browsers end a dialog whose `cancel` was prevented before.
        if (gone.current) return;
        if (given.stays) dialog.current?.showModal();
        else given.onClose();
      }}
    >
      <h2 id={title}>{given.title}</h2>
      {given.children}
    </dialog>
  );
}

/** A question with what follows from a yes; stays open, with the reason, if it is refused. */
export function ConfirmDialog(given: {
  title: string;
  action: string;
  danger?: boolean;
  disabled?: boolean;
  busy?: boolean;
  problem?: Problem | null;
  children: ComponentChildren;
  onYes: () => void;
  onNo: () => void;
}) {
  const { busy = false, danger = false } = given;
  return (
    <Dialog title={given.title} onClose={given.onNo} stays={busy}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          given.onYes();
        }}
      >
        {given.children}
        <ProblemMessage problem={given.problem ?? null} />
        <p class="buttons">
          <button type="button" data-first={danger ? "" : undefined} disabled={busy} onClick={given.onNo}>
            Cancel
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy || given.disabled === true}>
            {given.action}
          </button>
        </p>
      </form>
    </Dialog>
  );
}

export interface Sending {
  busy: boolean;
  problem: Problem | null;
  /** Whether all of it was done. */
  run: (doing: () => Promise<void>) => Promise<boolean>;
  clear: () => void;
}

/** One change after another; the first that is refused is shown, and no other is tried. */
export function useSending(): Sending {
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

/** A button that asks, and then sends one call. */
export function ConfirmButton(given: {
  name: string;
  title: string;
  action: string;
  danger?: boolean;
  disabled?: boolean;
  /** The command that does the same. */
  line: string;
  method: "POST" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  children: ComponentChildren;
  onDone?: () => void;
}) {
  const { method, path, body } = given;
  const [asks, setAsks] = useState(false);
  const sending = useSending();
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send(method, path, body === undefined ? {} : { body });
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
        <ConfirmDialog
          title={given.title}
          action={given.action}
          danger={given.danger ?? false}
          busy={sending.busy}
          problem={sending.problem}
          onYes={() => void yes()}
          onNo={() => setAsks(false)}
        >
          {given.children}
          <Command line={given.line} calls={[{ method, path, ...(body === undefined ? {} : { body }) }]} />
        </ConfirmDialog>
      )}
    </>
  );
}
