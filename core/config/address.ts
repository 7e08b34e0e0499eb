// The addresses that the owner's files may name: https anywhere, http to this device alone, and nothing hidden in them.
// Never resolves a name and never connects. Needs no package, so that a program that only wants a host and a port stays quick to start.

export type AddressProblem =
  | "not-a-url"
  | "scheme"
  | "host"
  | "userinfo"
  | "fragment"
  | "query"
  | "not-loopback";

export interface AddressRule {
  /** Hosts other than this device. `https`: over https alone. */
  readonly elsewhere: "https" | "http-or-https";
  readonly query: boolean;
}

/** What is wrong with the address, or `undefined`. */
export function addressProblem(value: unknown, rule: AddressRule): AddressProblem | undefined {
  if (typeof value !== "string" || value.length > addressCharactersMax || !URL.canParse(value)) {
    return "not-a-url";
  }
  const url = new URL(value);
  if (url.protocol !== "http:" && url.protocol !== "https:") return "scheme";
  if (!/^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)$/i.test(url.hostname)) return "host";
  if (url.username !== "" || url.password !== "" || /^[a-z]+:\/\/[^/?#]*@/i.test(value)) return "userinfo";
  if (value.includes("#")) return "fragment";
  if (!rule.query && value.includes("?")) return "query";
  if (isLoopback(url.hostname)) return undefined;
  if (rule.elsewhere === "https" && url.protocol !== "https:") return "not-loopback";
  return undefined;
}

export const addressCharactersMax = 2_048;

/** 127.0.0.0/8, ::1 and the name `localhost`, as `URL.hostname` writes them. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" ||
    /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(hostname);
}

/**
 * `host:port` as a network grant names it: IPv6 in brackets, the scheme's port filled in. `localhost` and 127.0.0.1 are different
 * grants, so the host stays as the owner wrote it.
 */
export function hostAndPort(address: string): string {
  const url = new URL(address);
  return `${url.hostname}:${portOf(url)}`;
}

/** Where to connect: the host as sockets name it, IPv6 without brackets, and the port with the scheme's filled in. */
export function socketAddress(url: URL): { host: string; port: number; secure: boolean } {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  return { host, port: portOf(url), secure: url.protocol === "https:" };
}

function portOf(url: URL): number {
  return Number(url.port || (url.protocol === "https:" ? 443 : 80));
}

/** What is wrong, for people. The address itself is never shown, since a key may stand in its query or before its host. */
export function addressProblemText(problem: AddressProblem, value: unknown): string {
  switch (problem) {
    case "not-a-url":
      return typeof value === "string"
        ? "this text is no such address"
        : "found something that is not a text";
    case "scheme":
      return "this one is of another kind";
    case "host":
      // A comma would split the network grant that is made of it, and a * would widen it.
      return "its host has characters other than letters, digits, . _ and -";
    case "userinfo":
      return "this one carries a user name or password before its host; put a key into secrets/ and name it";
    case "fragment":
      return "this one has a # part, which is never sent";
    case "query":
      return "this one has a ? part";
    case "not-loopback":
      return `${new URL(String(value)).hostname} is not this device`;
  }
}
