/** Values over time as steps: each holds until the next. Drawn as SVG, and given as a table. */
import { useMemo } from "preact/hooks";
import { moment, percent } from "../words";
import "./steps.css";

export interface Line {
  name: string;
  /** `held`: with the area below it; `fair`: dashed; `entitled`: dotted. */
  kind: "held" | "fair" | "entitled";
  /** Milliseconds since 1970, and a part of a whole; in order of time. */
  points: [number, number][];
}

const WIDTH = 640;
const HEIGHT = 190;
const LEFT = 60;
const BOTTOM = 22;
const SHOWN_TIMES = 12;

export function Steps({ title, lines, until }: { title: string; lines: Line[]; until: number }) {
  const drawn = useMemo(() => lines.filter((each) => each.points.length > 0), [lines]);
  const from = Math.min(...drawn.flatMap((each) => each.points.map(([at]) => at)));
  const most = ceiling(Math.max(0.01, ...drawn.flatMap((each) => each.points.map(([, value]) => value))));
  const x = (at: number): number => LEFT + ((at - from) / Math.max(1, until - from)) * (WIDTH - LEFT);
  const y = (value: number): number => (HEIGHT - BOTTOM) * (1 - value / most) + 6;
  const path = (points: [number, number][]): string => {
    const words: string[] = [];
    points.forEach(([at, value], index) => {
      words.push(index === 0 ? `M${x(at)} ${y(value)}` : `H${x(at)}V${y(value)}`);
    });
    return `${words.join("")}H${x(until)}`;
  };
  const times = [...new Set(drawn.flatMap((each) => each.points.map(([at]) => at)))].sort((a, b) => b - a);
  const valueAt = (line: Line, at: number): string => {
    const found = line.points.findLast(([when]) => when <= at);
    return found ? percent(found[1]) : "-";
  };
  return (
    <figure class="steps">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 6}`} role="img" aria-label={title}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line class="grid" x1={LEFT} x2={WIDTH} y1={y(most * part)} y2={y(most * part)} />
            <text x={LEFT - 6} y={y(most * part) + 4} text-anchor="end">
              {Math.round(most * part * 1000) / 10} %
            </text>
          </g>
        ))}
        <text x={LEFT} y={HEIGHT + 2}>
          {moment(new Date(from).toISOString())}
        </text>
        <text x={WIDTH} y={HEIGHT + 2} text-anchor="end">
          now
        </text>
        {drawn.map((each) => (
          <g key={each.name}>
            {each.kind === "held" && (
              <path class="area" d={`${path(each.points)}V${y(0)}H${x(each.points[0]?.[0] ?? from)}Z`} />
            )}
            <path class={each.kind} d={path(each.points)} />
          </g>
        ))}
      </svg>
      <figcaption>
        {drawn.map((each) => (
          <span key={each.name} class={`key ${each.kind}`}>
            {each.name}
          </span>
        ))}
      </figcaption>
      <details>
        <summary>As numbers</summary>
        <table>
          <thead>
            <tr>
              <th>Since</th>
              {drawn.map((each) => (
                <th key={each.name} class="numeric">
                  {each.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.slice(0, SHOWN_TIMES).map((at) => (
              <tr key={at}>
                <td>{moment(new Date(at).toISOString())}</td>
                {drawn.map((each) => (
                  <td key={each.name} class="numeric">
                    {valueAt(each, at)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}

/** The next value that a scale may end at. */
function ceiling(value: number): number {
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1];
  return steps.find((each) => each >= value) ?? 1;
}
