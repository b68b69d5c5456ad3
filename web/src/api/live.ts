/**
 * Views that follow the cluster.
 *
 * One stream per page tells that something is new; views read again then, every three seconds at
 * most, and after a minute in any case. Where the API refuses the stream, too many are open say,
 * one small call asks instead. A page that nobody sees follows nothing.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Store } from "../store";
import { get, Problem, type Query, queryText, trouble } from "./client";
import { session } from "./session";
import { follow } from "./stream";
import type { EventsPage, Page } from "./types";

/** Neither stream nor polling lets views read more often. */
const READ_EVERY_MS = 3_000;
const READ_AT_LEAST_EVERY_MS = 60_000;
const LONGEST_PAUSE_MS = 30_000;
/** After how long a call is made again that the API had no time for and named none. */
const RETRY_AFTER_S = 5;
/** How long there is polling until the stream is tried again. */
const POLL_FOR_MS = 60_000;

/** Rises whenever what is shown may be old. */
export const changes = new Store(0);
let readAt = 0;
let due: ReturnType<typeof setTimeout> | null = null;

/** Let views read now: this page itself has changed something. */
export function changed(): void {
  if (due !== null) clearTimeout(due);
  due = null;
  readAt = Date.now();
  changes.set(changes.value + 1);
}

/** Let views read soon; what comes at once is one change. */
function changedElsewhere(): void {
  due ??= setTimeout(changed, Math.max(0, readAt + READ_EVERY_MS - Date.now()));
}

export function followChanges(): void {
  let stop = new AbortController();
  let failures = 0;
  const seen = { after: null as number | null };

  const keepUp = async (): Promise<void> => {
    for (;;) {
      if (!session.token || document.hidden) {
        await pause(READ_EVERY_MS, stop.signal);
        stop = new AbortController();
        continue;
      }
      try {
        await listen(seen, stop.signal, () => {
          if (failures) changed();
          failures = 0;
        });
      } catch (problem) {
        if (stop.signal.aborted) stop = new AbortController();
        else if (!(problem instanceof Problem)) await pause(1_000, stop.signal); // it broke off
        else if (problem.status === 429 || problem.status === 404) {
          await poll(seen, stop.signal);
        } else {
          failures += 1;
          if (problem.passes) trouble.set(problem.message);
          const retryAfterS = problem.retryAfterS;
          await pause(Math.min(retryAfterS ? retryAfterS * 1000 : 1000 * 2 ** failures, LONGEST_PAUSE_MS), stop.signal);
        }
      }
    }
  };
  void keepUp();
  setInterval(() => {
    if (session.token && !document.hidden && Date.now() - readAt > READ_AT_LEAST_EVERY_MS) changed();
  }, READ_EVERY_MS);
  document.addEventListener("visibilitychange", () => {
    stop.abort();
    if (!document.hidden) changed();
  });
  // Another token may see other events.
  session.caller.subscribe(() => {
    seen.after = null;
    stop.abort();
  });
}

interface Seen {
  after: number | null;
}

/** Follow the stream until it ends. */
async function listen(seen: Seen, stop: AbortSignal, begun: () => void): Promise<void> {
  const query = queryText({ brief: true, after: seen.after });
  await follow(`events/stream${query}`, stop, ({ kind, data }) => {
    if (kind === "begin") {
      trouble.set(null);
      begun();
    }
    // What views read before it began may be old already.
    if (kind === "changed" || seen.after === null) changedElsewhere();
    if (kind === "begin" || kind === "changed") seen.after = (data as { after: number }).after;
  });
  await pause(READ_EVERY_MS / 3, stop);
}

/** Ask again and again whether there is something new, for a minute. */
async function poll(seen: Seen, stop: AbortSignal): Promise<void> {
  const until = Date.now() + POLL_FOR_MS;
  let failures = 0;
  while (Date.now() < until && !stop.aborted && session.token) {
    let wait = READ_EVERY_MS;
    try {
      const query = seen.after === null ? { newest: true, limit: 1 } : { after: seen.after, limit: 1 };
      const page: EventsPage = await get("events", query);
      if (seen.after === null) seen.after = page.next;
      else if (page.items.length) {
        // Many at once are one change: go on from the newest.
        seen.after = (await get<EventsPage>("events", { newest: true, limit: 1 })).next;
        changedElsewhere();
      }
      if (failures) changed();
      failures = 0;
    } catch (problem) {
      failures += 1;
      const retryAfterS = problem instanceof Problem ? problem.retryAfterS : null;
      wait = Math.min(retryAfterS ? retryAfterS * 1000 : READ_EVERY_MS * 2 ** failures, LONGEST_PAUSE_MS);
    }
    await pause(wait, stop);
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const over = (): void => {
      clearTimeout(timer);
      stop.removeEventListener("abort", over);
      done();
    };
    const timer = setTimeout(over, stop.aborted ? 0 : ms);
    stop.addEventListener("abort", over);
  });
}

export interface Live<T> {
  data: T | null;
  /** Why the last call failed for good; passing trouble is shown at the top of the page. */
  problem: Problem | null;
  again: () => void;
}

/**
 * Read what `key` names, now and after each change; null: nothing to read yet.
 *
 * `everyMs`: what is large is read no oftener than that.
 */
export function useReading<T>(
  key: string | null,
  reading: (key: string) => Promise<T>,
  everyMs = 0,
): Live<T> {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  /** Calls so far, and the one whose answer is shown: those before it are too old. */
  const calls = useRef({ made: 0, shown: 0, at: 0 });
  const next = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const read = useCallback(() => {
    clearTimeout(next.current);
    next.current = undefined;
    if (key === null || !session.token) return;
    const mine = ++calls.current.made;
    calls.current.at = Date.now();
    const markShown = (): boolean => {
      if (mine < calls.current.shown) return false;
      calls.current.shown = mine;
      return true;
    };
    reading(key).then(
      (found) => {
        if (!markShown()) return;
        setData(found);
        setProblem(null);
      },
      (found: unknown) => {
        if (!(found instanceof Problem)) throw found;
        if (found.status === 401 || mine !== calls.current.made) return; // another is on its way
        if (!found.passes && markShown()) setProblem(found);
        else if (found.passes && !document.hidden) {
          clearTimeout(next.current);
          next.current = setTimeout(read, (found.retryAfterS ?? RETRY_AFTER_S) * 1000);
        }
      },
    );
  }, [key]);
  useEffect(() => {
    setData(null);
    setProblem(null);
    read();
    const soon = (): void => {
      const rests = calls.current.at + everyMs - Date.now();
      if (everyMs === 0 || rests <= 0) read();
      else if (!document.hidden) next.current ??= setTimeout(read, rests);
    };
    const forget = changes.subscribe(soon);
    return () => {
      forget();
      clearTimeout(next.current);
      next.current = undefined;
      calls.current.shown = ++calls.current.made; // what is on its way answers another question
    };
  }, [key, read]);
  return { data, problem, again: read };
}

/** Follow one thing. */
export function useLive<T>(path: string | null, query: Query = {}): Live<T> {
  return useReading<T>(path === null ? null : JSON.stringify([path, query]), (key) => {
    const [path, query] = JSON.parse(key) as [string, Query];
    return get<T>(path, query);
  });
}

/** Follow one thing that costs the API much: after changes, but no oftener than `everyMs`. */
export function useSlowly<T>(path: string, everyMs: number): Live<T> {
  return useReading<T>(path, get<T>, everyMs);
}

/** A value once it has not changed for a while, of what somebody types say. */
export function useSettled<T>(value: T, afterMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), afterMs);
    return () => clearTimeout(timer);
  }, [value, afterMs]);
  return settled;
}

/** Names that have a part of what is typed, looked for by the API among all. */
export function useNamesLike(path: string | null, typed: string): string[] {
  const part = useSettled(typed.trim().toLowerCase(), 300);
  const sound = /^[a-z0-9._-]{0,63}$/.test(part) && path !== null;
  const { data } = useRows<{ name: string; is_group?: boolean }>(sound ? path : null, [{ limit: 20, search: part }]);
  return data?.rows.filter((each) => !each.is_group).map((each) => each.name) ?? [];
}

/** Rows that one query may bring to the page; the API's own limit for a page of a list. */
export const MAX_ROWS = 500;

export interface Rows<T> {
  rows: T[];
  /** Whether the API has more than the page shows. */
  more: boolean;
}

/** Follow the first rows of each query, joined; no oftener than `everyMs`. */
export function useRows<T>(path: string | null, queries: Query[] = [{}], everyMs = 0): Live<Rows<T>> {
  const key = path === null ? null : JSON.stringify([path, queries]);
  return useReading<Rows<T>>(key, rowsOf, everyMs);
}

async function rowsOf<T>(key: string): Promise<Rows<T>> {
  const [path, queries] = JSON.parse(key) as [string, Query[]];
  const pages = await Promise.all(queries.map((query) => get<Page<T>>(path, { limit: MAX_ROWS, ...query })));
  return {
    rows: pages.flatMap((page) => page.items),
    // Of events there is always a next page, which may be empty.
    more: pages.some(({ next, items }, index) => {
      return next !== null && items.length >= Number(queries[index]?.limit ?? MAX_ROWS);
    }),
  };
}
