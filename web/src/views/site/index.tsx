/** Operators' views by the first word of the path; each is loaded when it is opened. */
import type { VNode } from "preact";
import { lazily } from "../../parts/lazy";

const CapacityView = lazily(async () => (await import("./capacity")).CapacityView);
const HostMapView = lazily(async () => (await import("./map")).HostMapView);
const HostView = lazily(async () => (await import("./host")).HostView);
const HostAddView = lazily(async () => (await import("./host_settings")).HostAddView);
const PlansView = lazily(async () => (await import("./plans")).PlansView);
const PlanView = lazily(async () => (await import("./plans")).PlanView);
const SiteView = lazily(async () => (await import("./site")).SiteView);
const WhatIfsView = lazily(async () => (await import("./what_ifs")).WhatIfsView);
const WhatIfView = lazily(async () => (await import("./what_ifs")).WhatIfView);
const TenantsView = lazily(async () => (await import("./tenants")).TenantsView);

/** Undefined: it is no view of ours. */
export function siteView(first: string, second: string | undefined): VNode | undefined {
  if (first === "capacity") return <CapacityView />;
  if (first === "map") return <HostMapView />;
  if (first === "hosts" && second !== undefined) return <HostView key={second} name={second} />;
  if (first === "host-add") return <HostAddView />;
  if (first === "plans") return second === undefined ? <PlansView /> : <PlanView key={second} id={second} />;
  if (first === "tenants" && second === undefined) return <TenantsView />;
  if (first === "what-ifs") return second === undefined ? <WhatIfsView /> : <WhatIfView key={second} id={second} />;
  if (first === "site") return <SiteView />;
  return undefined;
}
