/** What a host is set to offer; and hosts that are registered. */
import { useMemo, useState } from "preact/hooks";
import { newKey, send } from "../../api/client";
import { session } from "../../api/session";
import type { Host } from "../../api/types";
import { ConfirmDialog, useSending } from "../../parts/dialogs";
import { Command, ProblemMessage } from "../../parts/basics";
import { go } from "../../route";
import { amount, noun, shellWord, unitName } from "../../words";
import "./site.css";

/** Of one resource, as typed: empty means that nothing is said. */
interface Typed {
  override: string;
  reserved: string;
  ratio: string;
}

/** How the host is reached, as typed. */
interface Reach {
  uri: string;
  credential: string;
  keys: string;
}

interface Change {
  uri?: string;
  credential?: string | null;
  ssh_host_keys?: string[];
  labels?: string[];
  overrides?: Record<string, number | null>;
  reserved?: Record<string, number>;
  ratios?: Record<string, number | null>;
  max_builds?: number;
  fence_target?: string;
}

const words = (typed: string): string[] => typed.split(/[\s,]+/).filter(Boolean);
const lines = (typed: string): string[] => typed.split("\n").map((each) => each.trim()).filter(Boolean);

export function Settings({ host, onDone }: { host: Host; onDone: () => void }) {
  const [reach, setReach] = useState<Reach>({
    uri: host.uri,
    credential: host.credential ?? "",
    keys: host.ssh_host_keys.join("\n"),
  });
  const [labels, setLabels] = useState(host.labels.join(", "));
  const [builds, setBuilds] = useState(String(host.max_builds));
  const [target, setTarget] = useState(host.fence_target ?? "");
  const [typed, setTyped] = useState<Record<string, Typed>>(() =>
    Object.fromEntries(
      host.inventories.map((each) => [
        each.resource,
        {
          override: each.override === null ? "" : String(each.override),
          reserved: String(each.reserved),
          ratio: each.own_ratio_thousandths === null ? "" : String(each.own_ratio_thousandths / 1000),
        },
      ]),
    ),
  );
  const sending = useSending();
  const path = `hosts/${encodeURIComponent(host.name)}`;
  const { change, options } = changeOf(host, reach, words(labels), builds, target, typed);
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Host>("PATCH", path, { body: change });
    });
    if (done) onDone();
  };
  const set = (resource: string, field: keyof Typed, value: string): void => {
    const before = typed[resource];
    if (before) setTyped({ ...typed, [resource]: { ...before, [field]: value } });
  };
  return (
    <ConfirmDialog
      title={`Settings of ${host.name}`}
      action="Save"
      busy={sending.busy}
      disabled={options.length === 0}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={onDone}
    >
      <label>
        libvirt URI <span class="hint">(another address of the same machine; its VMs stay)</span>
        <input value={reach.uri} onInput={(event) => setReach({ ...reach, uri: event.currentTarget.value })} />
      </label>
      <label>
        Credential <span class="hint">(its name on the machines of monitor and workers; SSH needs one)</span>
        <input
          value={reach.credential}
          onInput={(event) => setReach({ ...reach, credential: event.currentTarget.value })}
        />
      </label>
      {reach.uri.startsWith("qemu+ssh") && (
        <label>
          SSH host keys <span class="hint">(a line each)</span>
          <textarea rows={3} value={reach.keys} onInput={(event) => setReach({ ...reach, keys: event.currentTarget.value })} />
        </label>
      )}
      <label>
        Labels <span class="hint">(words or key=value, separated by commas)</span>
        <input value={labels} onInput={(event) => setLabels(event.currentTarget.value)} />
      </label>
      {host.inventories.map((each) => {
        const now = typed[each.resource];
        if (now === undefined) return null;
        return (
          <fieldset key={each.resource} class="fields">
            <legend>{unitName(each.resource)}</legend>
            <Amount name="Override" value={now.override} empty="detected" onInput={(value) => set(each.resource, "override", value)} />
            <Amount name="Reserved" value={now.reserved} empty="0" onInput={(value) => set(each.resource, "reserved", value)} />
            <Amount
              name="Over-commit"
              value={now.ratio}
              empty="of its labels"
              step="0.001"
              onInput={(value) => set(each.resource, "ratio", value)}
            />
          </fieldset>
        );
      })}
      <div class="fields">
        <Amount name="Builds at a time" value={builds} empty="" onInput={setBuilds} />
        <label>
          Fence target
          <input value={target} onInput={(event) => setTarget(event.currentTarget.value)} />
        </label>
      </div>
      <Consequences host={host} typed={typed} change={change} />
      {options.length > 0 && (
        <Command
          line={`fuga host set ${shellWord(host.name)} ${options.join(" ")}`}
          calls={[{ method: "PATCH", path, body: change }]}
        />
      )}
    </ConfirmDialog>
  );
}

function Amount(given: { name: string; value: string; empty: string; step?: string; onInput: (value: string) => void }) {
  return (
    <label>
      {given.name}
      <input
        type="number"
        min="0"
        step={given.step ?? "1"}
        value={given.value}
        placeholder={given.empty}
        onInput={(event) => given.onInput(event.currentTarget.value)}
      />
    </label>
  );
}

/** What the change makes of the capacity, and whether more is committed than that. */
function Consequences(given: { host: Host; typed: Record<string, Typed>; change: Change }) {
  const { host, typed, change } = given;
  const effects = host.inventories.flatMap((each) => {
    const now = typed[each.resource];
    if (now === undefined) return [];
    const own = now.ratio.trim();
    const ratio = own ? Math.round(Number(own) * 1000) : each.own_ratio_thousandths === null ? each.ratio_thousandths : null;
    const offered = Number(now.override.trim() || (each.detected ?? 0)) - Number(now.reserved || 0) - each.foreign;
    if (ratio === null) return [`The over-commit of ${noun(each.resource)} becomes that of its labels.`];
    const capacity = Math.max(0, Math.floor((offered * ratio) / 1000));
    if (capacity === each.capacity) return [];
    const over =
      each.committed > capacity
        ? ` ${amount(each.resource, each.committed)} is committed: nothing new fits, what runs stays until a plan of the kind “Repair” moves it.`
        : "";
    return [
      `Capacity of ${noun(each.resource)}: ${amount(each.resource, each.capacity)} now, ${amount(each.resource, capacity)} then.${over}`,
    ];
  });
  if (change.labels) {
    effects.push("Labels count from the next round on. VMs stay, even where a rule of theirs is broken by it.");
  }
  if (effects.length === 0) return null;
  return (
    <div class="message" role="status">
      {effects.map((each) => (
        <p key={each}>{each}</p>
      ))}
    </div>
  );
}

function changeOf(
  host: Host,
  reach: Reach,
  labels: string[],
  builds: string,
  target: string,
  typed: Record<string, Typed>,
): { change: Change; options: string[] } {
  const change: Change = {};
  const options: string[] = [];
  const uri = reach.uri.trim();
  if (uri && uri !== host.uri) {
    change.uri = uri;
    options.push(`--uri ${shellWord(uri)}`);
  }
  const credential = reach.credential.trim() || null;
  if (credential !== host.credential) {
    change.credential = credential;
    options.push(credential === null ? "--no-credential" : `--credential ${shellWord(credential)}`);
  }
  const keys = lines(reach.keys);
  if (keys.length > 0 && keys.join("\n") !== host.ssh_host_keys.join("\n")) {
    change.ssh_host_keys = keys;
    options.push(...keys.map((each) => `--ssh-host-key ${shellWord(each)}`));
  }
  if (labels.toSorted().join(" ") !== host.labels.toSorted().join(" ")) {
    change.labels = labels;
    options.push(...(labels.length ? labels.map((each) => `--label ${shellWord(each)}`) : ["--label ''"]));
  }
  for (const each of host.inventories) {
    const now = typed[each.resource];
    if (now === undefined) continue;
    const override = now.override.trim() === "" ? null : Number(now.override);
    if (override !== each.override) {
      change.overrides = { ...change.overrides, [each.resource]: override };
      options.push(override === null ? `--detected ${each.resource}` : `--override ${each.resource}=${override}`);
    }
    const reserved = Number(now.reserved || 0);
    if (reserved !== each.reserved) {
      change.reserved = { ...change.reserved, [each.resource]: reserved };
      options.push(`--reserve ${each.resource}=${reserved}`);
    }
    const ratio = now.ratio.trim() === "" ? null : Math.round(Number(now.ratio) * 1000);
    if (ratio !== each.own_ratio_thousandths) {
      change.ratios = { ...change.ratios, [each.resource]: ratio };
      options.push(ratio === null ? `--label-ratio ${each.resource}` : `--ratio ${each.resource}=${ratio / 1000}`);
    }
  }
  if (builds.trim() && Number(builds) !== host.max_builds) {
    change.max_builds = Number(builds);
    options.push(`--max-builds ${builds}`);
  }
  if (target !== (host.fence_target ?? "")) {
    change.fence_target = target;
    options.push(`--fence-target ${shellWord(target)}`);
  }
  return { change, options };
}

// ---- registering ----------------------------------------------------------------

interface Form {
  name: string;
  uri: string;
  credential: string;
  keys: string;
  labels: string;
  kind: "kvm" | "qemu" | "test";
  pool: string;
  network: string;
  target: string;
}

const EMPTY: Form = {
  name: "",
  uri: "",
  credential: "",
  keys: "",
  labels: "",
  kind: "kvm",
  pool: "default",
  network: "default",
  target: "",
};

export function HostAddView() {
  const [form, setForm] = useState<Form>(EMPTY);
  const sending = useSending();
  const body = useMemo(() => bodyOf(form), [form]);
  const key = useMemo(newKey, [JSON.stringify(body)]);
  const set = (change: Partial<Form>): void => setForm({ ...form, ...change });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const done = await sending.run(async () => {
      await send<Host>("POST", "hosts", { body, key });
    });
    if (done) go("hosts", form.name);
  };
  if (session.readOnly) return <p class="empty">This token only reads: it cannot register hosts.</p>;
  return (
    <>
      <h1>Register a host</h1>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <p class="hint">
          It is starting until the monitor reaches it and has seen what it offers; from then on rounds place VMs on it.
        </p>
        <label>
          Name
          <input required maxLength={63} value={form.name} onInput={(event) => set({ name: event.currentTarget.value })} />
        </label>
        <label>
          libvirt URI
          <input
            required
            placeholder="qemu+tls://host.example.org/system"
            value={form.uri}
            onInput={(event) => set({ uri: event.currentTarget.value })}
          />
        </label>
        <label>
          Credential <span class="hint">(its name on the machines of monitor and workers; SSH needs one)</span>
          <input value={form.credential} onInput={(event) => set({ credential: event.currentTarget.value })} />
        </label>
        {form.uri.startsWith("qemu+ssh") && (
          <label>
            SSH host keys <span class="hint">(a line each)</span>
            <textarea rows={3} value={form.keys} onInput={(event) => set({ keys: event.currentTarget.value })} />
          </label>
        )}
        <label>
          Labels <span class="hint">(words or key=value, separated by commas)</span>
          <input placeholder="zone=east, ssd" value={form.labels} onInput={(event) => set({ labels: event.currentTarget.value })} />
        </label>
        <div class="fields">
          <label>
            Guests run by
            <select value={form.kind} onChange={(event) => set({ kind: event.currentTarget.value as Form["kind"] })}>
              <option value="kvm">KVM</option>
              <option value="qemu">QEMU (emulated)</option>
              <option value="test">libvirt's test driver</option>
            </select>
          </label>
          <label>
            Pool
            <input required value={form.pool} onInput={(event) => set({ pool: event.currentTarget.value })} />
          </label>
          <label>
            Network
            <input required value={form.network} onInput={(event) => set({ network: event.currentTarget.value })} />
          </label>
        </div>
        <label>
          Fence target <span class="hint">(argument of the site's fencing command, such as a BMC address)</span>
          <input value={form.target} onInput={(event) => set({ target: event.currentTarget.value })} />
        </label>
        <ProblemMessage problem={sending.problem} />
        <p class="buttons">
          <button type="submit" class="primary" disabled={sending.busy}>
            {sending.problem?.passes ? "Send again" : "Register"}
          </button>
        </p>
      </form>
      <Command line={commandOf(form)} calls={[{ method: "POST", path: "hosts", body }]} />
    </>
  );
}

function bodyOf(form: Form): Record<string, unknown> {
  return {
    name: form.name,
    uri: form.uri,
    labels: words(form.labels),
    domain_type: form.kind,
    pool: form.pool,
    network: form.network,
    ...(form.credential ? { credential: form.credential } : {}),
    ...(form.keys.trim() ? { ssh_host_keys: lines(form.keys) } : {}),
    ...(form.target ? { fence_target: form.target } : {}),
  };
}

function commandOf(form: Form): string {
  const options = [
    ...(form.credential ? ["--credential", shellWord(form.credential)] : []),
    ...lines(form.keys).flatMap((each) => ["--ssh-host-key", shellWord(each)]),
    ...words(form.labels).flatMap((each) => ["--label", shellWord(each)]),
    ...(form.kind === "kvm" ? [] : ["--domain-type", form.kind]),
    ...(form.pool === "default" ? [] : ["--pool", shellWord(form.pool)]),
    ...(form.network === "default" ? [] : ["--network", shellWord(form.network)]),
    ...(form.target ? ["--fence-target", shellWord(form.target)] : []),
  ];
  return ["fuga host add", shellWord(form.name || "NAME"), shellWord(form.uri || "URI"), ...options].join(" ");
}
