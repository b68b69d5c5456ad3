/**
 * Views that follow the cluster.
 *
 * One small call per page asks for new events; a view reads again only if there were any, or
 * after a minute. A page that nobody sees asks for nothing.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Store } from "../store";
import { get, Problem, type Query } from "./client";
import { session } from "./session";
import type { EventsPage, Page } from "./types";

const LOOK_EVERY_MS = 3_000;
const READ_AT_LEAST_EVERY_MS = 60_000;
const LONGEST_PAUSE_MS = 30_000;

/** Rises whenever what is shown may be old. */
export const changes = new Store(0);
export const changed = (): void => changes.set(changes.value + 1);

export function followChanges(): void {
  let seen: number | null = null;
  let readAt = Date.now();
  let failures = 0;
  const look = async (): Promise<void> => {
    let pause = LOOK_EVERY_MS;
    if (session.token && !document.hidden) {
      try {
        const query = seen === null ? { newest: true, limit: 1 } : { after: seen, limit: 1 };
        const page: EventsPage = await get("events", query);
        const lasts = Date.now() - readAt > READ_AT_LEAST_EVERY_MS;
        if (failures || lasts || (seen !== null && page.items.length)) {
          readAt = Date.now();
          // Many at once are one change: go on from the newest.
          const newest: EventsPage = await get("events", { newest: true, limit: 1 });
          seen = newest.next;
          changed();
        } else {
          seen ??= page.next;
        }
        failures = 0;
      } catch (problem) {
        failures += 1;
        const told = problem instanceof Problem ? problem.retryAfterS : null;
        pause = Math.min(told ? told * 1000 : LOOK_EVERY_MS * 2 ** failures, LONGEST_PAUSE_MS);
      }
    }
    setTimeout(look, pause);
  };
  void look();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) changed();
  });
}

export interface Live<T> {
  data: T | null;
  /** Why the last call failed for good; passing trouble is told at the top of the page. */
  problem: Problem | null;
  again: () => void;
}

/** Read what `asked` says, now and after each change; null: nothing to read yet. */
export function useReading<T>(asked: string | null, reading: (asked: string) => Promise<T>): Live<T> {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const current = useRef<string | null>(null);
  const read = useCallback(() => {
    if (asked === null || !session.token) return;
    reading(asked).then(
      (found) => {
        if (current.current !== asked) return;
        setData(found);
        setProblem(null);
      },
      (found: unknown) => {
        if (!(found instanceof Problem)) throw found;
        const told = !found.passes && found.status !== 401;
        if (current.current === asked && told) setProblem(found);
      },
    );
  }, [asked]);
  useEffect(() => {
    current.current = asked;
    setData(null);
    setProblem(null);
    read();
    return changes.subscribe(read);
  }, [asked, read]);
  return { data, problem, again: read };
}

/** Follow one thing. */
export function useLive<T>(path: string | null, query: Query = {}): Live<T> {
  return useReading<T>(path === null ? null : JSON.stringify([path, query]), (asked) => {
    const [path, query] = JSON.parse(asked) as [string, Query];
    return get<T>(path, query);
  });
}

/** Rows that one query may bring to the page; the API's own limit for a page of a list. */
const MOST_ROWS = 500;

export interface Rows<T> {
  rows: T[];
  /** Whether the API has more than the page shows. */
  more: boolean;
}

/** Follow the first rows of each query, joined. */
export function useRows<T>(path: string | null, queries: Query[] = [{}]): Live<Rows<T>> {
  const asked = path === null ? null : JSON.stringify([path, queries]);
  return useReading<Rows<T>>(asked, async (asked) => {
    const [path, queries] = JSON.parse(asked) as [string, Query[]];
    const pages = await Promise.all(
      queries.map((query) => get<Page<T>>(path, { limit: MOST_ROWS, ...query })),
    );
    return {
      rows: pages.flatMap((page) => page.items),
      more: pages.some((page) => page.next !== null),
    };
  });
}
