/** A form that makes one thing: closed until somebody wants it, and kept if a call is lost. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { newKey } from "../api/client";
import { type Call, Command } from "./as_command";
import { useSending } from "./dialogs";
import { ProblemMessage } from "./basics";

export function CreateForm(given: {
  title: string;
  /** What is sent: another content is another intention. */
  content: unknown;
  ready: boolean;
  make: (key: string) => Promise<void>;
  line: string;
  calls?: Call[];
  children: ComponentChildren;
}) {
  const { busy, problem, run } = useSending();
  const key = useMemo(newKey, [JSON.stringify(given.content)]);
  return (
    <details class="adding">
      <summary class="button">{given.title}</summary>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          void run(() => given.make(key));
        }}
      >
        {given.children}
        <ProblemMessage problem={problem} />
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

/** How many VMs, as text: what is typed stays, a number or not. */
export function CountField(given: { value: string; onInput: (value: string) => void }) {
  return (
    <label>
      How many
      <input
        type="number"
        min="1"
        max="10000"
        required
        value={given.value}
        onInput={(event) => given.onInput(event.currentTarget.value)}
      />
    </label>
  );
}

/** How many VMs at most, with those that the request borrows. */
export function MostField(given: { value: string; min: number; onInput: (value: string) => void }) {
  return (
    <label>
      At most <span class="hint">(may stay empty; VMs beyond the first number are borrowed: they end, with notice, for smaller shares)</span>
      <input
        type="number"
        min={given.min || 1}
        max="10000"
        value={given.value}
        onInput={(event) => given.onInput(event.currentTarget.value)}
      />
    </label>
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
