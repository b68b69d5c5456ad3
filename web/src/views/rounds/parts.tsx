/** Parts of the views of rounds. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../../api/client";

/** A round is computed again before the API answers; it gives up after ten minutes. */
export const PATIENCE_MS = 660_000;

export interface Once<T> {
  data: T | null;
  problem: Problem | null;
  busy: boolean;
  ask: () => void;
}

/** What is asked for once, not again and again: it costs the API a process for some seconds. */
export function useOnce<T>(reading: () => Promise<T>, atOnce = false): Once<T> {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(atOnce);
  const there = useRef(true);
  const ask = useCallback((): void => {
    setBusy(true);
    setProblem(null);
    reading()
      .then(
        (found) => there.current && setData(found),
        (found: unknown) => {
          if (!(found instanceof Problem)) throw found;
          if (there.current) setProblem(found);
        },
      )
      .finally(() => there.current && setBusy(false));
  }, [reading]);
  useEffect(() => {
    there.current = true;
    if (atOnce) ask();
    return () => {
      there.current = false;
    };
  }, []);
  return { data, problem, busy, ask };
}

export interface Series {
  name: string;
  /** One of the colours of lines. */
  colour: "one" | "two" | "three";
  values: (number | null)[];
}

const HEIGHT = 100;

/** Lines over steps or rounds, with a mark at one of them. */
export function Lines(given: {
  label: string;
  series: Series[];
  at: number;
  format: (value: number) => string;
  onPick?: (at: number) => void;
}) {
  const { series, at, format } = given;
  const known = series.flatMap((each) => each.values.filter((value) => value !== null));
  const low = Math.min(0, ...known);
  const high = Math.max(0, ...known);
  const most = Math.max(1, ...series.map((each) => each.values.length - 1));
  const x = (place: number): number => 3 + (place / most) * 994;
  const y = (value: number): number =>
    high === low ? HEIGHT / 2 : HEIGHT - 4 - ((value - low) / (high - low)) * (HEIGHT - 8);
  const pick = (event: PointerEvent): void => {
    if (event.buttons === 0) return;
    const box = (event.currentTarget as Element).getBoundingClientRect();
    given.onPick?.(Math.round(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * most));
  };
  const now = (each: Series): string => {
    const value = each.values[at];
    return value === null || value === undefined ? "-" : format(value);
  };
  return (
    <figure class="lines">
      <figcaption>
        {series.map((each) => (
          <span key={each.name} class={`of-line ${each.colour}`}>
            {each.name} <b>{now(each)}</b>
          </span>
        ))}
      </figcaption>
      <svg
        viewBox={`0 0 1000 ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${given.label}: ${series.map((each) => `${each.name} ${now(each)}`).join(", ")}`}
        onPointerDown={pick}
        onPointerMove={pick}
      >
        <line class="zero" x1="0" x2="1000" y1={y(0)} y2={y(0)} />
        {series.map((each) => (
          <path key={each.name} class={`line ${each.colour}`} d={pathOf(each.values, x, y)} />
        ))}
        <line class="cursor" x1={x(at)} x2={x(at)} y1="0" y2={HEIGHT} />
      </svg>
    </figure>
  );
}

function pathOf(
  values: (number | null)[],
  x: (place: number) => number,
  y: (value: number) => number,
): string {
  const parts: string[] = [];
  let drawing = false;
  values.forEach((value, place) => {
    if (value === null) {
      drawing = false;
      return;
    }
    const point = `${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    // A point with no neighbour is seen by its round end.
    parts.push(drawing ? `L${point}` : `M${point}L${point}`);
    drawing = true;
  });
  return parts.join("");
}
