/** A table that sorts, filters and lets rows be chosen. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { age } from "../words";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** What it sorts and filters by; without it, it does neither. */
  value?: (row: T) => string | number;
  /** What it sorts by is not what it shows, a time behind an age: words do not find it. */
  sortsOnly?: boolean;
  numeric?: boolean;
}

/** How long something exists; the youngest first. */
export function aged<T>(at: (row: T) => string, name = "Age"): Column<T> {
  return { name, value: (row) => -Date.parse(at(row)), cell: (row) => age(at(row)), sortsOnly: true, numeric: true };
}

interface Given<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  more?: boolean;
  /** Whether words find names among those, too, that are not here. */
  searches?: boolean;
  onWords?: (words: string) => void;
  keyOf: (row: T) => string;
  empty: ComponentChildren;
  /** With it, rows can be chosen, and this shows what can be done with them. */
  actions?: (chosen: T[], clear: () => void) => ComponentChildren;
  nameOf?: (row: T) => string;
}

/** Rows drawn at once; the others are a button away, so that 10,000 do not hang a browser. */
const DRAWN = 200;

export function Table<T>(given: Given<T>) {
  const [words, setWords] = useState("");
  const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [drawn, setDrawn] = useState(DRAWN);
  const { columns, rows, keyOf } = given;

  const found = useMemo(() => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const read = columns.flatMap((each) => (each.value && !each.sortsOnly ? [each.value] : []));
    const matching = rows.filter((row) => {
      if (wanted.length === 0) return true;
      const text = read.map((value) => String(value(row)).toLowerCase());
      return wanted.every((word) => text.some((each) => each.includes(word)));
    });
    const by = order === null ? undefined : columns[order.column]?.value;
    if (by === undefined) return matching;
    const sign = order?.down ? -1 : 1;
    return matching.toSorted((a, b) => sign * compare(by(a), by(b)));
  }, [rows, words, order, columns]);

  const seen = found.slice(0, drawn);
  const picked = found.filter((row) => chosen.has(keyOf(row)));
  const pick = (keys: string[], on: boolean): void => {
    const next = new Set(chosen);
    for (const key of keys) on ? next.add(key) : next.delete(key);
    setChosen(next);
  };
  const sortBy = (column: number): void =>
    setOrder(order?.column === column ? (order.down ? null : { column, down: true }) : { column, down: false });
  const all = seen.length > 0 && seen.every((row) => chosen.has(keyOf(row)));

  return (
    <div class="table">
      <div class="tools">
        <input
          type="search"
          aria-label={`Filter ${given.label}`}
          placeholder="Filter: words in any column"
          value={words}
          onInput={(event) => {
            setWords(event.currentTarget.value);
            given.onWords?.(event.currentTarget.value);
          }}
        />
        <span class="counted" role="status">
          {found.length === rows.length ? rows.length : `${found.length} of ${rows.length}`}
          {given.more && " (there are more: only the first are here)"}
        </span>
        {given.more && (
          <p class="hint cut">
            {given.searches
              ? "Type a part of a name: it is looked for among all. Other words find only what is here."
              : "Words find only what is here; the command below lists all."}
          </p>
        )}
        {picked.length > 0 && given.actions?.(picked, () => setChosen(new Set()))}
      </div>
      {rows.length === 0 ? (
        <p class="empty">{given.empty}</p>
      ) : found.length === 0 ? (
        <p class="empty">No row has all of these words{given.more && (given.searches ? ", and no name has the first" : ", among the first that are here")}.</p>
      ) : (
        <div class="scrolls" tabIndex={0} role="region" aria-label={given.label}>
          <table>
            <thead>
              <tr>
                {given.actions && (
                  <th class="choose">
                    <input
                      type="checkbox"
                      aria-label="Choose all that are shown"
                      checked={all}
                      onChange={(event) => pick(seen.map(keyOf), event.currentTarget.checked)}
                    />
                  </th>
                )}
                {columns.map((column, index) => (
                  <th
                    key={column.name}
                    class={column.numeric ? "numeric" : ""}
                    aria-sort={order?.column !== index ? "none" : order.down ? "descending" : "ascending"}
                  >
                    {column.value === undefined ? (
                      column.name
                    ) : (
                      <button type="button" class="sort" onClick={() => sortBy(index)}>
                        {column.name}
                        <span aria-hidden="true">
                          {order?.column !== index ? "" : order.down ? " ▾" : " ▴"}
                        </span>
                      </button>
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {seen.map((row) => (
                <tr key={keyOf(row)}>
                  {given.actions && (
                    <td class="choose">
                      <input
                        type="checkbox"
                        aria-label={`Choose ${given.nameOf?.(row) ?? keyOf(row)}`}
                        checked={chosen.has(keyOf(row))}
                        onChange={(event) => pick([keyOf(row)], event.currentTarget.checked)}
                      />
                    </td>
                  )}
                  {columns.map((column) => (
                    <td key={column.name} class={column.numeric ? "numeric" : ""} data-name={column.name}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found.length > drawn && (
        <button type="button" onClick={() => setDrawn(drawn + DRAWN)}>
          Show {Math.min(DRAWN, found.length - drawn)} more
        </button>
      )}
    </div>
  );
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
