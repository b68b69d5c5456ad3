/** The API's schemas by their names; `generated.ts` is made from docs/openapi.json at each build. */
import type { components } from "./generated";

type Schemas = components["schemas"];
export type Capacity = Schemas["Capacity"];
export type ConsoleRead = Schemas["ConsoleRead"];
export type Event = Schemas["Event"];
export type EventsPage = Schemas["EventsPage"];
export type Host = Schemas["Host"];
export type HostMap = Schemas["HostMap"];
export type Image = Schemas["Image"];
export type LoginWays = Schemas["LoginWays"];
export type ProblemDocument = Schemas["ProblemDocument"];
export type ProviderWay = Schemas["ProviderWay"];
export type Quota = Schemas["Quota"];
export type Request = Schemas["Request"];
export type RequestExplanation = Schemas["RequestExplanation"];
export type RequestInput = Schemas["RequestInput"];
export type RoundDetail = Schemas["RoundDetail"];
export type RoundSummary = Schemas["RoundSummary"];
export type Standing = Schemas["Standing"];
export type Status = Schemas["Status"];
export type Token = Schemas["Token"];
export type TokenCreated = Schemas["TokenCreated"];
export type Vm = Schemas["Vm"];
export type VmExplanation = Schemas["VmExplanation"];
export type VmType = Schemas["VmType"];
export type Page<T> = { items: T[]; next: string | null };
