/** A view that is a table of one list of the API: read, loading, empty, refused and too long alike everywhere. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { type Query, queryText } from "../api/client";
import { MOST_ROWS, useRows } from "../api/live";
import { Command, Loading, Told } from "./basics";
import { type Column, Table } from "./table";

export function Listing<T>(given: {
  title: string;
  label: string;
  path: string;
  /** What is asked of the list; several lists are joined. */
  queries?: Query[];
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
  const rows = useMemo(() => (data && given.order ? given.order(data.rows) : data?.rows), [data]);
  return (
    <>
      <h1>{given.title}</h1>
      {given.children}
      <Told problem={problem} />
      {rows === undefined ? (
        problem === null && <Loading />
      ) : (
        <Table
          label={given.label}
          columns={given.columns}
          rows={rows}
          more={data?.more ?? false}
          keyOf={given.keyOf}
          empty={given.empty}
          {...(given.nameOf ? { nameOf: given.nameOf } : {})}
          {...(given.actions ? { actions: given.actions } : {})}
        />
      )}
      <Command line={given.line} calls={queries.map((query) => ({ path: given.path + queryText({ limit: MOST_ROWS, ...query }) }))} />
    </>
  );
}
