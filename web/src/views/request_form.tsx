/** The form that requests VMs; before sending it tells what fits now. */
import { useMemo, useState } from "preact/hooks";
import { newKey, send } from "../api/client";
import { useLive, useNamesLike, useRows, useSettled } from "../api/live";
import { session } from "../api/session";
import type { Capacity, Request, RequestInput, Reservation, Quota, VmType, Volume } from "../api/types";
import { CountField, MostField } from "../parts/create_form";
import { useSending } from "../parts/dialogs";
import { Command, ProblemMessage } from "../parts/basics";
import { go } from "../route";
import { isFree } from "./volumes";
import { amount, count, noun, range, shellWord } from "../words";

interface Named {
  name: string;
}

interface Form {
  type: string;
  many: string;
  most: string;
  name: string;
  tenant: string;
  image: string;
  network: string;
  labels: string;
  volume: string;
  newVolumes: string;
  together: boolean;
  spot: boolean;
  reservation: string;
}

const EMPTY: Form = {
  type: "",
  many: "1",
  most: "",
  name: "",
  tenant: "",
  image: "",
  network: "",
  labels: "",
  volume: "",
  newVolumes: "",
  together: false,
  spot: false,
  reservation: "",
};

export function RequestForm() {
  const [form, setForm] = useState<Form>(EMPTY);
  const { busy, problem, run } = useSending();
  const types = useRows<VmType>("vm-types").data?.rows;
  const known = useRows<Named & { is_group?: boolean }>(session.isOperator ? "tenants" : null).data;
  const images = useRows<Named & { state: string }>("images").data?.rows;
  const networks = useRows<Named>("networks").data?.rows;
  const reservations = useRows<Reservation>("reservations", [{ state: "in_force" }]).data?.rows;
  const volumes = useRows<Volume>("volumes").data?.rows;
  const tenantsLike = useNamesLike(known?.more ? "tenants" : null, form.tenant);
  // Of a name that is still being typed there is nothing to ask.
  const named = !known?.more || tenantsLike.includes(form.tenant);
  const tenant = session.caller.value?.tenant ?? (named ? form.tenant : "");
  const set = (change: Partial<Form>): void => setForm({ ...form, ...change });
  const type = form.type || types?.[0]?.name || "";
  const many = Number(form.many);
  // Of another type or tenant nothing can be drawn.
  const drawable = reservations?.filter((each) => each.vm_type === type && each.tenant === tenant && each.left > 0);
  const reservation = drawable?.find((each) => each.id === form.reservation);
  // A volume has one VM, and comes into no reservation's room.
  const free = volumes?.filter((each) => isFree(each) && each.tenant === tenant);
  const brings = many === 1 && !reservation && free?.some((each) => each.name === form.volume);
  const body = useMemo<RequestInput>(
    () => bodyOf(brings ? form : { ...form, volume: "" }, type, many, reservation?.id),
    [form, type, many, reservation?.id, brings],
  );
  // One key for one content: sending again after lost answers asks once.
  const key = useMemo(newKey, [JSON.stringify(body)]);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    await run(async () => {
      const made = await send<Request>("POST", "requests", { body, key });
      go("requests", made.id);
    });
  };

  if (session.readOnly) return <p class="empty">This token only reads: it cannot request VMs.</p>;
  return (
    <>
      <h1>Request VMs</h1>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label>
          Type
          <select value={type} onChange={(event) => set({ type: event.currentTarget.value })}>
            {types?.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}: {sizes(each)}
              </option>
            ))}
          </select>
        </label>
        <CountField value={form.many} onInput={(many) => set({ many })} />
        <MostField value={form.most} min={many} onInput={(most) => set({ most })} />
        {session.isOperator && (
          <label>
            Tenant
            {known?.more ? (
              <>
                <input
                  required
                  list="tenants-like"
                  placeholder="type a part of its name"
                  value={form.tenant}
                  onInput={(event) => set({ tenant: event.currentTarget.value.trim() })}
                />
                <datalist id="tenants-like">{tenantsLike.map((each) => <option key={each} value={each} />)}</datalist>
              </>
            ) : (
              <select
                required
                value={form.tenant}
                onChange={(event) => set({ tenant: event.currentTarget.value })}
              >
                <option value="">choose one</option>
                {known?.rows.filter((each) => !each.is_group).map((each) => <option key={each.name}>{each.name}</option>)}
              </select>
            )}
          </label>
        )}
        <label>
          Name <span class="hint">(may stay empty)</span>
          <input value={form.name} maxLength={63} onInput={(event) => set({ name: event.currentTarget.value })} />
        </label>
        <Choice name="Image" none="the site's own" names={images?.filter((each) => each.state === "ready")} value={form.image} onChange={(image) => set({ image })} />
        <Choice name="Network" none="the host's own" names={networks} value={form.network} onChange={(network) => set({ network })} />
        {many === 1 && !reservation && (
          <Choice name="Volume" none="none" names={free} value={form.volume} onChange={(volume) => set({ volume })} />
        )}
        {!reservation && (
          <label>
            New volumes <span class="hint">(for each VM, which they outlive, in GiB, separated by commas)</span>
            <input value={form.newVolumes} placeholder="data:100, logs:10" onInput={(event) => set({ newVolumes: event.currentTarget.value })} />
          </label>
        )}
        <label>
          Labels <span class="hint">(key=value, separated by commas)</span>
          <input value={form.labels} placeholder="tier=front, team=web" onInput={(event) => set({ labels: event.currentTarget.value })} />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={form.together}
            onChange={(event) => set({ together: event.currentTarget.checked })}
          />{" "}
          All of them in one round, or none yet
        </label>
        <label class="check">
          <input type="checkbox" checked={form.spot} onChange={(event) => set({ spot: event.currentTarget.checked })} />{" "}
          Spot VMs <span class="hint">(on what nobody else wants, in no share; they end, with notice, when others need the room)</span>
        </label>
        {Boolean(drawable?.length) && (
          <label>
            Reservation <span class="hint">(its room is kept for this request)</span>
            <select
              value={reservation?.id ?? ""}
              onChange={(event) => set({ reservation: event.currentTarget.value })}
            >
              <option value="">none</option>
              {drawable?.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.name}: {each.left} left
                </option>
              ))}
            </select>
          </label>
        )}
        {type && !reservation && (tenant || !session.isOperator) && (
          <Fits type={type} many={many} tenant={tenant || null} resources={types?.find((each) => each.name === type)?.resources ?? {}} />
        )}
        <ProblemMessage problem={problem} />
        <p class="buttons">
          <button type="submit" class="primary" disabled={busy || !type}>
            {busy ? "Sending …" : problem?.passes ? "Send again" : "Request"}
          </button>
        </p>
      </form>
      <Command line={commandOf(body)} calls={[{ method: "POST", path: "requests", body }]} />
    </>
  );
}

function Choice(given: {
  name: string;
  none: string;
  names: Named[] | undefined;
  value: string;
  onChange: (name: string) => void;
}) {
  if (!given.names?.length) return null;
  return (
    <label>
      {given.name}
      <select value={given.value} onChange={(event) => given.onChange(event.currentTarget.value)}>
        <option value="">{given.none}</option>
        {given.names.map((each) => (
          <option key={each.name}>{each.name}</option>
        ))}
      </select>
    </label>
  );
}

/** How many fit now, what runs out first, and which quota stands in the way. */
function Fits(given: { type: string; many: number; tenant: string | null; resources: Record<string, number> }) {
  const { type, many, tenant, resources } = given;
  const settled = useSettled(type, 300);
  const { data, problem } = useLive<Capacity>("capacity", {
    vm_type: settled,
    tenant: session.isOperator ? tenant : null,
  });
  const quota = useLive<Quota>(tenant ? `tenants/${encodeURIComponent(tenant)}/quota` : null);
  if (!(many > 0)) return null;
  if (problem !== null) return <ProblemMessage problem={problem} />;
  if (data === null || data.vm_type !== type) return <p class="message">Looking up what fits …</p>;
  const least = data.at_least ? "at least " : "";
  const short = many > data.fits;
  const excess = (quota.data?.limits ?? []).filter(
    (each) => each.requested + many * (each.resource === "vms" ? 1 : (resources[each.resource] ?? 0)) > each.limit,
  );
  return (
    <div class={`message ${short || excess.length ? "warn" : "good"}`} role="status">
      <p>
        {short
          ? data.fits === 0
            ? `None of ${many} fits now: they wait for their turn.`
            : `Now ${least}${data.fits} of ${many} fit; the others wait for their turn.`
          : `All ${count(many, "VM")} would fit now (there is room for ${least}${data.fits}).`}
        {short && data.runs_out_first && ` What runs out first: ${noun(data.runs_out_first)}.`}
      </p>
      {excess.map((each) => (
        <p key={`${each.tenant} ${each.resource}`}>
          The quota of {each.tenant} is {amount(each.resource, each.limit)} {noun(each.resource)}, and{" "}
          {amount(each.resource, each.requested)} are requested already: this goes beyond it.
        </p>
      ))}
    </div>
  );
}

function sizes(type: VmType): string {
  return Object.entries(type.resources)
    .map(([name, value]) => `${amount(name, value)} ${noun(name)}`)
    .join(", ");
}

const listed = (text: string): string[] =>
  text
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);

function bodyOf(form: Form, type: string, many: number, reservation?: string): RequestInput {
  const labels = listed(form.labels).map((each) => [each.split("=")[0] ?? "", each.split("=").slice(1).join("=")]);
  // A size that is no number is refused by the API, with the field's name.
  const newVolumes = listed(reservation ? "" : form.newVolumes).map((each) => {
    const size = (each.split(":")[1] ?? "").replace(/ *GiB$/i, "");
    return { name: each.split(":")[0] ?? "", size_gib: size && Number.isFinite(Number(size)) ? Number(size) : size };
  });
  return {
    vm_type: type,
    count: many,
    ...(Number(form.most) > many ? { max_count: Number(form.most) } : {}),
    ...(form.together && many > 1 ? { min_count: many } : {}),
    ...(form.spot ? { spot: true } : {}),
    ...(reservation ? { reservation } : {}),
    ...(form.name.trim() ? { name: form.name.trim() } : {}),
    ...(form.tenant ? { tenant: form.tenant } : {}),
    ...(form.image ? { image: form.image } : {}),
    ...(form.network ? { network: form.network } : {}),
    ...(form.volume ? { volumes: [form.volume] } : {}),
    ...(newVolumes.length ? { new_volumes: newVolumes } : {}),
    ...(labels.length ? { labels: Object.fromEntries(labels) } : {}),
  } as RequestInput;
}

function commandOf(body: RequestInput): string {
  const words = ["fuga", "request", body.vm_type, "-n", range(body)];
  const add = (option: string, value: string | null | undefined): void => {
    if (value) words.push(option, value);
  };
  add("--min-count", body.min_count ? String(body.min_count) : null);
  if (body.spot) words.push("--spot");
  add("--reservation", body.reservation);
  add("--tenant", body.tenant);
  add("--name", body.name);
  add("--image", body.image);
  add("--network", body.network);
  for (const name of body.volumes ?? []) add("--volume", name);
  for (const each of body.new_volumes ?? []) add("--new-volume", `${each.name}:${each.size_gib}GiB`);
  for (const [key, value] of Object.entries(body.labels ?? {})) add("--label", `${key}=${String(value)}`);
  return words.map(shellWord).join(" ");
}
