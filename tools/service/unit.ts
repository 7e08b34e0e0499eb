// The systemd user unit that runs `up` for one home: its name, its text, and the commands that install it. Pure: looks at no file and
// starts nothing.
//
// Only what a user's own manager can do stands in it. Settings that take capabilities away (PrivateDevices, ProtectKernelModules,
// ProtectClock, CapabilityBoundingSet) end such a unit with 218/CAPABILITIES before its first line; file system protection works there
// because of PrivateUsers. Memory that is written and executed cannot be forbidden: the JavaScript engine compiles into it.

import { createHash } from "node:crypto";
import { basename, join } from "node:path";

export interface UnitFacts {
  /** Resolved. */
  readonly home: string;
  /** Where this checkout lies. */
  readonly root: string;
  /** The Deno binary itself: a wrapper would take the signals and leave Deno behind. */
  readonly deno: string;
  /** The `up` task of deno.json. */
  readonly upTask: string;
  /** The user's own home directory. */
  readonly userHome: string | undefined;
  /** Where packages lie, and what else says where they come from. */
  readonly environment: { readonly DENO_DIR: string } & Readonly<Record<string, string>>;
}

export interface Unit {
  /** `boxmaker.service`, for the home of that name in the user's home directory. */
  readonly name: string;
  readonly text: string;
  readonly commands: readonly string[];
}

const temporaryDirectories = ["/tmp", "/var/tmp"];

export function unitOf(facts: UnitFacts): Unit {
  const name = unitName(facts);
  const commands = installCommands(name, facts);
  return { name, commands, text: unitText(facts, commands) };
}

/** Two homes are two units. */
function unitName({ home, userHome }: UnitFacts): string {
  if (userHome !== undefined && home === join(userHome, ".boxmaker")) return "boxmaker.service";
  const words = basename(home).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 32);
  const hash = createHash("sha256").update(home).digest("hex").slice(0, 6);
  return `boxmaker-${words === "" ? hash : `${words}-${hash}`}.service`;
}

function installCommands(name: string, { home, root }: UnitFacts): string[] {
  const unit = `~/.config/systemd/user/${name}`;
  return [
    "mkdir -p ~/.config/systemd/user",
    `cd ${shellWord(root)} && deno task -q service --home ${shellWord(home)} > ${unit}`,
    "systemctl --user daemon-reload",
    `systemctl --user enable --now ${name}`,
    "loginctl enable-linger    # from boot on, not from your first login",
    `journalctl --user -u ${name} -f    # what it says`,
  ];
}

function unitText(facts: UnitFacts, commands: readonly string[]): string {
  const { home, root, environment } = facts;
  const inTemporary = [home, root, environment.DENO_DIR].some((path) =>
    temporaryDirectories.some((directory) => path.startsWith(`${directory}/`))
  );
  return `# Boxmaker: both roles of ${home.replaceAll("\n", "?")}, from boot on. Printed by: deno task service
#
${commands.map((command) => `#   ${command}`).join("\n")}

[Unit]
Description=Boxmaker (${specifiers(home)})
Documentation=${specifiers(encodeURI(`file://${root}/docs/operations.md`))}
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory=${specifiers(root)}
ExecStart=${execStart(facts)}
${Object.entries(environment).map(([key, value]) => `Environment=${quoted(`${key}=${value}`)}`).join("\n")}
# 2: something the owner wrote is wrong; starting again would not make it right.
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
# SIGTERM to the launcher alone, which stops both roles in order within 5 s.
KillMode=mixed
TimeoutStopSec=20
UMask=0077

NoNewPrivileges=yes
PrivateUsers=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths=${quoted(home)} ${quoted(`-${environment.DENO_DIR}`)}
${inTemporary ? "# PrivateTmp would hide a path that this unit needs." : "PrivateTmp=yes"}
ProtectControlGroups=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=default.target
`;
}

// The task's own flags, so that there is one place that says what the launcher may do.
function execStart({ deno, home, root, upTask }: UnitFacts): string {
  const words = upTask.split(" ");
  const program = words.pop();
  if (words[0] !== "deno" || words[1] !== "run" || program === undefined || !program.endsWith(".ts")) {
    throw new Error(`the up task of deno.json is not the one this knows: ${upTask}`);
  }
  return [deno, ...words.slice(1), "--config", join(root, "deno.json"), join(root, program), "--home", home]
    .map((word, at) => at === 0 ? quoted(word) : quoted(word.replaceAll("$", "$$$$"))).join(" ");
}

/** `%` begins a specifier everywhere in a unit. */
function specifiers(text: string): string {
  return text.replaceAll("%", "%%");
}

function quoted(word: string): string {
  const escaped = specifiers(word).replaceAll("\\", "\\\\").replaceAll('"', '\\"');
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(escaped) ? escaped : `"${escaped}"`;
}

function shellWord(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
