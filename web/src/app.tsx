/** The frame of every view: who you are, where you can go, and what is wrong. */
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { trouble } from "./api/client";
import { useLive } from "./api/live";
import { session } from "./api/session";
import type { Status } from "./api/types";
import { Login, logOut } from "./login";
import { route } from "./route";
import { lazily } from "./parts/lazy";
import { useStore } from "./store";
import { EventsView } from "./views/events";
import { GroupsView } from "./views/groups";
import { HostsView } from "./views/hosts";
import { ImagesView } from "./views/images";
import { KeysView } from "./views/keys";
import { NetworksView } from "./views/networks";
import { Overview } from "./views/overview";
import { RequestForm } from "./views/request_form";
import { RequestsView, RequestView } from "./views/requests";
import { ReservationsView, ReservationView } from "./views/reservations";
import { siteView } from "./views/site";
import { TokenView } from "./views/token";
import { VmsView, VmView } from "./views/vms";
import { VolumesView } from "./views/volumes";

const Rounds = lazily(async () => (await import("./views/rounds")).Rounds);

interface Place {
  where: string;
  name: string;
  /** Views that are reached from there, and have no place of their own. */
  below?: string;
}

/** Where one can go, in groups: what is a tenant's, what is the site's, what has happened and who asks. */
const NAVIGATION: readonly { name: string; operators?: true; places: readonly Place[] }[] = [
  {
    name: "Of tenants",
    places: [
      { where: "", name: "Overview" },
      { where: "vms", name: "VMs" },
      { where: "requests", name: "Requests", below: "ask" },
      { where: "reservations", name: "Reservations" },
      { where: "volumes", name: "Volumes" },
      { where: "groups", name: "Groups" },
      { where: "keys", name: "Keys" },
      { where: "images", name: "Images" },
      { where: "networks", name: "Networks" },
    ],
  },
  {
    name: "Of the site",
    operators: true,
    places: [
      { where: "hosts", name: "Hosts", below: "host-add" },
      { where: "map", name: "Map" },
      { where: "capacity", name: "Capacity" },
      { where: "plans", name: "Plans" },
      { where: "what-ifs", name: "What if" },
      { where: "tenants", name: "Tenants" },
      { where: "site", name: "Site" },
    ],
  },
  {
    name: "Records",
    places: [
      { where: "rounds", name: "Rounds" },
      { where: "events", name: "Events" },
      { where: "token", name: "Token" },
    ],
  },
];

function placeOf(first: string): Place | undefined {
  const all = NAVIGATION.flatMap((each) => each.places);
  return all.find((each) => each.where === first || each.below === first);
}

export function App() {
  const caller = useStore(session.caller);
  const asks = useStore(session.asks);
  const { path } = useStore(route);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        To the content
      </a>
      <header>
        <a class="brand" href="#/">
          fuga
        </a>
        {caller && (
          <>
            <Navigation here={path[0] ?? ""} />
            <span class="who">
              {caller.tenant ?? "operator"}
              {caller.read_only && ", read-only"}
            </span>
            <button type="button" class="quiet" onClick={() => void logOut()}>
              Log out
            </button>
          </>
        )}
      </header>
      <Trouble />
      <main id="main" tabIndex={-1} aria-busy={asks !== null && caller === null}>
        {caller && <View key={`${caller.role} ${caller.tenant}`} />}
      </main>
      <Login />
    </>
  );
}

/** In one row where there is room for it; behind a button, group by group, where there is not. */
function Navigation({ here }: { here: string }) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const place = placeOf(here);
  useEffect(() => setOpen(false), [here]);
  const close = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !open) return;
    setOpen(false);
    button.current?.focus();
  };
  return (
    <nav aria-label="Views" onKeyDown={close}>
      <button ref={button} type="button" class="menu" aria-expanded={open} aria-controls="places" onClick={() => setOpen(!open)}>
        <span aria-hidden="true">☰</span> {place?.name ?? "Views"}
      </button>
      <div id="places" class={open ? "places open" : "places"}>
        {NAVIGATION.filter((each) => !each.operators || session.isOperator).map((group) => (
          <div key={group.name} class="group" role="group" aria-label={group.name}>
            {group.places.map((each) => (
              <a
                key={each.where}
                href={`#/${each.where}`}
                aria-current={each === place ? "page" : undefined}
                onClick={() => setOpen(false)}
              >
                {each.name}
              </a>
            ))}
          </div>
        ))}
      </div>
    </nav>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function View() {
  const { path } = useStore(route);
  const [first = "", second] = path;
  const begins = useRef(true);
  useEffect(() => {
    const name = placeOf(first)?.name;
    document.title = name ? `${name} · fuga` : "fuga";
    // What had the focus may be gone with the view before: go on from the content, not from the top.
    const lost = !begins.current && document.activeElement === document.body;
    if (lost) document.getElementById("main")?.focus({ preventScroll: true });
    begins.current = false;
  }, [path]);
  const views: Record<string, () => VNode> = {
    "": () => <Overview />,
    ask: () => <RequestForm />,
    vms: () => (second ? <VmView key={second} id={second} /> : <VmsView />),
    requests: () => (second ? <RequestView key={second} id={second} /> : <RequestsView />),
    hosts: () => <HostsView />,
    keys: () => <KeysView />,
    images: () => <ImagesView />,
    networks: () => <NetworksView />,
    reservations: () => (second ? <ReservationView key={second} id={second} /> : <ReservationsView />),
    volumes: () => <VolumesView />,
    groups: () => <GroupsView />,
    events: () => <EventsView />,
    token: () => <TokenView />,
    rounds: () => <Rounds path={path.slice(1)} />,
  };
  const site = session.isOperator ? siteView(first, second) : undefined;
  if (site) return site;
  const view = Object.hasOwn(views, first) ? views[first] : undefined;
  return view ? view() : <p class="empty">There is no such view. Choose one above.</p>;
}

/** What keeps the page or the site from going on, in words. */
function Trouble() {
  const lost = useStore(trouble);
  const caller = useStore(session.caller);
  const { data } = useLive<Status>(caller ? "status" : null);
  const notices = [
    ...(lost ? [`${lost} What you see may be old; what you typed stays.`] : []),
    ...(data?.paused ? ["The slot loop is paused: requests wait until it resumes."] : []),
    ...(data?.late ?? []).map((each) => each.message),
    ...(data?.disks ?? []),
  ];
  return (
    <div class="troubles" role="status" aria-live="polite">
      {notices.map((each) => (
        <p key={each}>{each}</p>
      ))}
    </div>
  );
}
