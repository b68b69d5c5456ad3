/** The frame of every view: who you are, where you can go, and what is wrong. */
import type { VNode } from "preact";
import { trouble } from "./api/client";
import { useLive } from "./api/live";
import { session } from "./api/session";
import type { Status } from "./api/types";
import { Login, logOut } from "./login";
import { route } from "./route";
import { useStore } from "./store";
import { EventsView } from "./views/events";
import { GroupsView } from "./views/groups";
import { HostsView } from "./views/hosts";
import { ImagesView } from "./views/images";
import { KeysView } from "./views/keys";
import { NetworksView } from "./views/networks";
import { Overview } from "./views/overview";
import { RequestForm } from "./views/ask";
import { RequestsView, RequestView } from "./views/requests";
import { Rounds } from "./views/rounds";
import { siteView } from "./views/site";
import { TokenView } from "./views/token";
import { VmsView, VmView } from "./views/vms";

const NAVIGATION: readonly [string, string, boolean][] = [
  ["", "Overview", false],
  ["vms", "VMs", false],
  ["requests", "Requests", false],
  ["hosts", "Hosts", true],
  ["map", "Map", true],
  ["plans", "Plans", true],
  ["tenants", "Tenants", true],
  ["rounds", "Rounds", false],
  ["site", "Site", true],
  ["keys", "Keys", false],
  ["images", "Images", false],
  ["networks", "Networks", false],
  ["groups", "Groups", false],
  ["events", "Events", false],
  ["token", "Token", false],
];

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
            <nav aria-label="Views">
              {NAVIGATION.filter(([, , operators]) => !operators || session.isOperator).map(([where, name]) => (
                <a
                  key={where}
                  href={`#/${where}`}
                  aria-current={(path[0] ?? "") === where ? "page" : undefined}
                >
                  {name}
                </a>
              ))}
            </nav>
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

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function View() {
  const { path } = useStore(route);
  const [first = "", second] = path;
  const views: Record<string, () => VNode> = {
    "": () => <Overview />,
    ask: () => <RequestForm />,
    vms: () => (second ? <VmView key={second} id={second} /> : <VmsView />),
    requests: () => (second ? <RequestView key={second} id={second} /> : <RequestsView />),
    hosts: () => <HostsView />,
    keys: () => <KeysView />,
    images: () => <ImagesView />,
    networks: () => <NetworksView />,
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
  const told = [
    ...(lost ? [`${lost} What you see may be old; what you typed stays.`] : []),
    ...(data?.paused ? ["The slot loop is paused: requests wait until it resumes."] : []),
    ...(data?.late ?? []).map((each) => each.message),
  ];
  return (
    <div class="troubles" role="status" aria-live="polite">
      {told.map((each) => (
        <p key={each}>{each}</p>
      ))}
    </div>
  );
}
