/** A form that makes one thing: closed until somebody wants it, and kept if a call is lost. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { newKey, Problem } from "../api/client";
import { changed } from "../api/live";
import { type Call, Command } from "./as_command";
import { Told } from "./basics";

export function Adding(given: {
  title: string;
  /** What is sent: another content is another intention. */
  content: unknown;
  ready: boolean;
  make: (key: string) => Promise<void>;
  line: string;
  calls?: Call[];
  children: ComponentChildren;
}) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const key = useMemo(newKey, [JSON.stringify(given.content)]);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await given.make(key);
      changed();
    } catch (found) {
      if (!(found instanceof Problem)) throw found;
      setProblem(found);
    }
    setBusy(false);
  };
  return (
    <details class="adding">
      <summary class="button">{given.title}</summary>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {given.children}
        <Told problem={problem} />
        <p class="buttons">
          <button type="submit" class="primary" disabled={busy || !given.ready}>
            {busy ? "Sending …" : problem?.passes ? "Send again" : given.title}
          </button>
        </p>
        <Command line={given.line} calls={given.calls ?? []} />
      </form>
    </details>
  );
}

/** A line of text of such a form. */
export function Field(given: {
  name: string;
  hint?: string;
  value: string;
  most?: number;
  onInput: (value: string) => void;
}) {
  return (
    <label>
      {given.name} {given.hint && <span class="hint">({given.hint})</span>}
      <input
        value={given.value}
        autocomplete="off"
        spellcheck={false}
        maxLength={given.most ?? 255}
        onInput={(event) => given.onInput(event.currentTarget.value)}
      />
    </label>
  );
}
