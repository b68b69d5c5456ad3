/** A view that is a table of one list of the API. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { type Query, queryText } from "../api/client";
import { useRows } from "../api/live";
import { Command, Loading, Told } from "./basics";
import { type Column, Table } from "./table";

export function Listing<T>(given: {
  title: string;
  label: string;
  path: string;
  query?: Query;
  line: string;
  columns: Column<T>[];
  keyOf: (row: T) => string;
  nameOf?: (row: T) => string;
  empty: string;
  /** In which order rows stand until somebody sorts; the API's if not given. */
  order?: (rows: T[]) => T[];
  actions?: ((chosen: T[], clear: () => void) => ComponentChildren) | undefined;
  children?: ComponentChildren;
}) {
  const query = given.query ?? {};
  const { data, problem } = useRows<T>(given.path, [query]);
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
      <Command line={given.line} calls={[{ path: given.path + queryText({ limit: 500, ...query }) }]} />
    </>
  );
}
