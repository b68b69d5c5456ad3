/** A view that is a table of one list of the API: read, loading, empty, refused and too long alike everywhere. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Query, queryText } from "../api/client";
import { MAX_ROWS, useRows, useSettled } from "../api/live";
import { Command, Loading, ProblemMessage } from "./basics";
import { type Column, Table } from "./table";

/** Typing goes on: ask when it rests. */
const RESTS_MS = 300;

/** The first word that can be a part of a name, as the API takes it. */
function partOfName(words: string): string | null {
  return words.toLowerCase().split(/\s+/).find((each) => /^[a-z0-9._-]{1,63}$/.test(each)) ?? null;
}

export function Listing<T>(given: {
  title: string;
  label: string;
  path: string;
  /** What is asked of the list; several lists are joined. */
  queries?: Query[];
  /** Whether the API looks for a part of a name: of a list that is cut, the others are found so. */
  searches?: boolean;
  line: string;
  columns: Column<T>[];
  keyOf: (row: T) => string;
  nameOf?: (row: T) => string;
  empty: ComponentChildren;
  /** In which order rows stand until somebody sorts; the API's if not given. */
  order?: (rows: T[]) => T[];
  actions?: ((chosen: T[], clear: () => void) => ComponentChildren) | undefined;
  children?: ComponentChildren;
}) {
  const queries = given.queries ?? [{}];
  const { data, problem } = useRows<T>(given.path, queries);
  const [words, setWords] = useState("");
  const part = partOfName(useSettled(words, RESTS_MS));
  const asks = given.searches === true && data?.more === true && part !== null;
  const found = useRows<T>(asks ? given.path : null, asks ? queries.map((query) => ({ ...query, search: part })) : []);
  const rows = useMemo(() => {
    if (data === null) return undefined;
    const known = new Set(data.rows.map(given.keyOf));
    const all = [...data.rows, ...(found.data?.rows.filter((each) => !known.has(given.keyOf(each))) ?? [])];
    return given.order ? given.order(all) : all;
  }, [data, found.data]);
  return (
    <>
      <h1>{given.title}</h1>
      {given.children}
      <ProblemMessage problem={problem} />
      {rows === undefined ? (
        problem === null && <Loading />
      ) : (
        <Table
          label={given.label}
          columns={given.columns}
          rows={rows}
          more={data?.more ?? false}
          searches={given.searches ?? false}
          onWords={setWords}
          keyOf={given.keyOf}
          empty={given.empty}
          {...(given.nameOf ? { nameOf: given.nameOf } : {})}
          {...(given.actions ? { actions: given.actions } : {})}
        />
      )}
      <Command line={given.line} calls={queries.map((query) => ({ path: given.path + queryText({ limit: MAX_ROWS, ...query }) }))} />
    </>
  );
}
