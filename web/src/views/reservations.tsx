/** Reservations: room that a tenant has from a time on, what is used of it and what is short. */
import { useMemo, useState } from "preact/hooks";
import { send } from "../api/client";
import { useLive, useRows } from "../api/live";
import { session } from "../api/session";
import type { Reservation, ReservationInput, VmType } from "../api/types";
import { CountField, CreateForm, Field } from "../parts/create_form";
import { Command, Fact, Loading, Panel, ProblemMessage, State } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { History } from "../parts/history";
import { Listing } from "../parts/listing";
import type { Column } from "../parts/table";
import { go, to } from "../route";
import { count, moment, readable, readersZone, shellWord, typedMoment } from "../words";

const COLUMNS: Column<Reservation>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => <a href={to("reservations", each.id)}>{each.name}</a> },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  { name: "Type", value: (each) => each.vm_type, cell: (each) => each.vm_type },
  { name: "VMs", value: (each) => each.count, cell: (each) => each.count, numeric: true },
  { name: "Used", value: (each) => each.used, cell: (each) => each.used, numeric: true },
  { name: "Left", value: (each) => each.left, cell: (each) => each.left, numeric: true },
  { name: "Kept", value: (each) => each.held, cell: (each) => each.held, numeric: true },
  { name: "Missing", value: (each) => each.missing, cell: (each) => each.missing, numeric: true },
  { name: "State", value: (each) => each.state, cell: (each) => readable(each.state) },
  { name: "From", value: (each) => Date.parse(each.starts_at), cell: (each) => moment(each.starts_at) },
  { name: "Until", value: (each) => Date.parse(each.ends_at), cell: (each) => moment(each.ends_at) },
  {
    name: "Decision",
    value: (each) => each.decision?.message ?? "",
    cell: (each) => each.decision?.message ?? "not decided yet",
  },
];

export function ReservationsView() {
  const [over, setOver] = useState(false);
  return (
    <Listing
      title="Reservations"
      label="reservations"
      path="reservations"
      queries={[over ? {} : { open: "true" }]}
      line={`fuga reservations${over ? " --all" : ""}`}
      columns={COLUMNS}
      keyOf={(each) => each.id}
      nameOf={(each) => each.name}
      empty="No reservations. Requests need none: reserve room that you must have at a time."
      actions={
        session.readOnly
          ? undefined
          : (chosen, clear) => <DeleteButton things={chosen} path="reservations" onDone={clear} />
      }
    >
      <p class="lead">Room that rounds keep from ten minutes before its beginning, for requests that name it.</p>
      <label class="check">
        <input type="checkbox" checked={over} onChange={(event) => setOver(event.currentTarget.checked)} /> Show those
        that are over
      </label>
      {!session.readOnly && <Reserve />}
    </Listing>
  );
}

/** States in which a reservation may still be given back. */
const OPEN = ["pending", "accepted", "in_force"];

export function ReservationView({ id }: { id: string }) {
  const path = `reservations/${encodeURIComponent(id)}`;
  const { data, problem } = useLive<Reservation>(path);
  if (data === null) return problem ? <ProblemMessage problem={problem} /> : <Loading />;
  return (
    <>
      <h1>
        {data.name} <State word={data.state} />
      </h1>
      <p class="lead">
        Room for {count(data.count, "VM")} of type {data.vm_type} for tenant {data.tenant}, from{" "}
        {moment(data.starts_at)} until {moment(data.ends_at)}.
      </p>
      {!session.readOnly && OPEN.includes(data.state) && (
        <div class="buttons">
          <DeleteButton things={[data]} path="reservations" onDone={() => go("reservations")} />
        </div>
      )}
      <Panel title="VMs">
        <dl class="facts">
          <Fact name="Used" value={String(data.used)} />
          <Fact name="Waiting" value={String(data.waiting)} />
          <Fact name="Left" value={String(data.left)} />
          <Fact name="Kept" value={String(data.held)} />
          <Fact name="Missing" value={String(data.missing)} />
          <Fact name="Room is kept from" value={moment(data.holds_from)} />
          <Fact name="Decision" value={data.decision?.message ?? "not decided yet"} />
        </dl>
        <Command line={`fuga reservation show ${shellWord(data.name)}`} calls={[{ path }]} />
      </Panel>
      <History subject={data.id} name={data.id} />
    </>
  );
}

const NOTHING = { type: "", many: "1", from: "", hours: "1", name: "", tenant: "" };

function Reserve() {
  const [typed, setTyped] = useState(NOTHING);
  const [made, setMade] = useState<string | null>(null);
  const types = useRows<VmType>("vm-types").data?.rows;
  const set = (change: Partial<typeof NOTHING>): void => setTyped((before) => ({ ...before, ...change }));
  const type = typed.type || types?.[0]?.name || "";
  const minutes = Math.round(Number(typed.hours) * 60);
  const { at: from, problem } = typedMoment(typed.from);
  const body = useMemo<ReservationInput>(
    () =>
      ({
        vm_type: type,
        count: Number(typed.many),
        for_s: minutes * 60,
        ...(from ? { starts_at: from } : {}),
        ...(typed.name.trim() ? { name: typed.name.trim() } : {}),
        ...(session.isOperator ? { tenant: typed.tenant.trim() } : {}),
      }) as ReservationInput,
    [typed, type],
  );
  return (
    <>
      <CreateForm
        title="Reserve room"
        content={body}
        ready={Boolean(!problem && type && body.count > 0 && minutes > 0 && (body.tenant ?? "x"))}
        make={async (key) => {
          setMade((await send<Reservation>("POST", "reservations", { body, key })).id);
          setTyped(NOTHING);
        }}
        line={commandOf(body, minutes)}
        calls={[{ method: "POST", path: "reservations", body }]}
      >
        <label>
          Type
          <select value={type} onChange={(event) => set({ type: event.currentTarget.value })}>
            {types?.map((each) => (
              <option key={each.name}>{each.name}</option>
            ))}
          </select>
        </label>
        <CountField value={typed.many} onInput={(many) => set({ many })} />
        <label>
          From <span class="hint">(your clock, {readersZone()}; empty: now; at most 30 days ahead)</span>
          <input
            type="datetime-local"
            value={typed.from}
            onInput={(event) => set({ from: event.currentTarget.value })}
          />
          {problem && (
            <span class="message warn" role="alert">
              {problem}
            </span>
          )}
        </label>
        <label>
          Hours
          <input
            type="number"
            min="0.25"
            max="720"
            step="0.25"
            required
            value={typed.hours}
            onInput={(event) => set({ hours: event.currentTarget.value })}
          />
        </label>
        <Field name="Name" hint="may stay empty" most={63} value={typed.name} onInput={(name) => set({ name })} />
        {session.isOperator && <Field name="Tenant" most={63} value={typed.tenant} onInput={(tenant) => set({ tenant })} />}
      </CreateForm>
      {made && <Decision key={made} id={made} />}
    </>
  );
}

/** What became of the reservation that was just requested: one that is refused is in no list of open ones. */
function Decision({ id }: { id: string }) {
  const { data } = useLive<Reservation>(`reservations/${id}`);
  if (data === null) return null;
  const tone = { refused: "warn", pending: "" }[data.state as string] ?? "good";
  return (
    <p class={`message ${tone}`} role="status">
      {data.state === "pending"
        ? `${data.name}: the control centre decides …`
        : `${data.name} is ${readable(data.state)}: ${data.decision?.message ?? ""}`}
    </p>
  );
}

function commandOf(body: ReservationInput, minutes: number): string {
  const words = ["fuga", "reserve", body.vm_type, "-n", String(body.count)];
  const add = (option: string, value: string | null | undefined): void => {
    if (value) words.push(option, value);
  };
  add("--from", body.starts_at?.replace(/:\d\d\.\d+Z$/, "Z"));
  add("--for", `${minutes}m`);
  add("--name", body.name);
  add("--tenant", body.tenant);
  return words.map(shellWord).join(" ");
}
