// A self-signed certificate for one address, made anew for each test, so that no key lies in the repository. DER by hand: a dozen nested
// lengths, no package. It is its own authority.

import { Buffer } from "node:buffer";

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

const oids = {
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
  commonName: [0x55, 0x04, 0x03],
  subjectAltName: [0x55, 0x1d, 0x11],
};

/** `address` is IPv4. Valid from yesterday to next year. */
export async function selfSigned(address: string): Promise<Certificate> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, [
    "sign",
    "verify",
  ]);
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("spki", pair.publicKey));
  const privateKey = new Uint8Array(await crypto.subtle.exportKey("pkcs8", pair.privateKey));
  const algorithm = sequence(tagged(0x06, oids.ecdsaWithSha256));
  const name = sequence(
    tagged(
      0x31,
      sequence(tagged(0x06, oids.commonName), tagged(0x0c, [...new TextEncoder().encode("a test")])),
    ),
  );
  const now = Date.now();
  const validity = sequence(utcTime(now - 86_400_000), utcTime(now + 365 * 86_400_000));
  const altName = sequence(tagged(0x87, address.split(".").map(Number)));
  const extensions = tagged(
    0xa3,
    sequence(sequence(tagged(0x06, oids.subjectAltName), tagged(0x04, altName))),
  );
  const body = sequence(
    tagged(0xa0, integer([2])),
    integer([1]),
    algorithm,
    name,
    validity,
    name,
    [...publicKey],
    extensions,
  );
  const raw = new Uint8Array(
    await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, pair.privateKey, new Uint8Array(body)),
  );
  const signature = sequence(integer([...raw.subarray(0, 32)]), integer([...raw.subarray(32)]));
  const certificate = sequence(body, algorithm, tagged(0x03, [0, ...signature]));
  return { cert: pem("CERTIFICATE", certificate), key: pem("PRIVATE KEY", [...privateKey]) };
}

type Bytes = readonly number[];

function tagged(tag: number, content: Bytes): Bytes {
  const { length } = content;
  const head = length < 0x80
    ? [length]
    : length < 0x100
    ? [0x81, length]
    : [0x82, length >> 8, length & 0xff];
  return [tag, ...head, ...content];
}

function sequence(...parts: Bytes[]): Bytes {
  return tagged(0x30, parts.flat());
}

/** Unsigned, shortest form. */
function integer(bytes: Bytes): Bytes {
  const from = bytes.findIndex((byte, at) => byte !== 0 || at === bytes.length - 1);
  const short = bytes.slice(from);
  return tagged(0x02, short[0] >= 0x80 ? [0, ...short] : short);
}

function utcTime(ms: number): Bytes {
  const text = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "").slice(2);
  return tagged(0x17, [...new TextEncoder().encode(text)]);
}

function pem(label: string, der: Bytes): string {
  const base64 = Buffer.from(der).toString("base64").replace(/.{64}(?=.)/g, "$&\n");
  return `-----BEGIN ${label}-----\n${base64}\n-----END ${label}-----\n`;
}
