/** Reads that are too large to be made at each change of a busy site. */
import { useEffect, useState } from "preact/hooks";
import { get, Problem } from "../../api/client";
import { changes, type Live } from "../../api/live";

/** Follow one large thing: after changes, but no oftener than `everyMs`, and not while hidden. */
export function useSlowly<T>(path: string, everyMs: number): Live<T> {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [asked, ask] = useState(0);
  useEffect(() => {
    let over = false;
    let readAt = 0;
    let timer: number | undefined;
    const read = async (): Promise<void> => {
      timer = undefined;
      readAt = Date.now();
      try {
        const found = await get<T>(path);
        if (over) return;
        setData(found);
        setProblem(null);
      } catch (found) {
        if (!(found instanceof Problem)) throw found;
        if (!over && !found.passes && found.status !== 401) setProblem(found);
      }
    };
    const soon = (): void => {
      if (document.hidden || timer !== undefined) return;
      timer = window.setTimeout(() => void read(), Math.max(0, readAt + everyMs - Date.now()));
    };
    void read();
    const forget = changes.subscribe(soon);
    return () => {
      over = true;
      forget();
      clearTimeout(timer);
    };
  }, [path, asked]);
  return { data, problem, again: () => ask(asked + 1) };
}
