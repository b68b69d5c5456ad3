/** Small parts of every view. */
import type { ComponentChildren } from "preact";
import { Problem } from "../api/client";
import { plain, readable } from "../words";

export { Command } from "./as_command";

export function ProblemMessage({ problem }: { problem: Problem | null }) {
  if (problem === null) return null;
  const places = problem.document?.errors ?? [];
  return (
    <div class="message bad" role="alert">
      <p>{problem.message}</p>
      {places.length > 0 && (
        <ul>
          {places.map((each) => (
            <li key={each.pointer ?? each.parameter ?? each.detail}>
              {[each.pointer ?? each.parameter, each.detail].filter(Boolean).join(": ")}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

const GOOD = new Set(["running", "placed", "up", "active", "done", "moved", "finished", "attached"]);
const BAD = new Set(["full", "lost", "down", "unreachable", "unknown", "failed", "late", "refused", "held back", "pool silent"]);
const UNDER_WAY = new Set(["pending", "partly_placed", "absent", "starting", "draining", "maintenance", "moving", "approved", "paused", "returning", "waiting", "creating", "attaching", "detaching", "withdrawing", "removing"]);

/** A state as a word with a mark: colour is never all that tells. */
export function State({ word, title }: { word: string; title?: string }) {
  const kind = GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : UNDER_WAY.has(word) ? "wait" : "off";
  return (
    <span class={`state ${kind}`} title={title}>
      {readable(word)}
    </span>
  );
}

/** A part of a whole, with a mark where another value stands. */
export function Bar(given: { part: number; mark?: number; label: string; over?: boolean }) {
  const width = `${Math.min(100, Math.max(0, given.part * 100))}%`;
  const mark = given.mark === undefined ? null : `${Math.min(100, given.mark * 100)}%`;
  return (
    <span class="bar" role="img" aria-label={given.label}>
      <span class={given.over ? "fill over" : "fill"} style={{ width }} />
      {mark !== null && <span class="mark" style={{ left: mark }} />}
    </span>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      Reading …
    </p>
  );
}

/** A row of a `dl`; of what there is nothing to say, none. */
export function Fact({ name, value }: { name: string; value: ComponentChildren }) {
  if (value === null || value === undefined || value === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{typeof value === "string" ? plain(value) : value}</dd>
    </div>
  );
}

export function Panel({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="panel">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
