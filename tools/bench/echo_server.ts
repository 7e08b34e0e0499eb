// What a hop to another process costs at the least: a Unix socket that sends back each byte, and one that answers any HTTP request with a
// line of JSON. A program of its own; ends with its standard input.

const [bytesPath, httpPath] = Deno.args;

const listener = Deno.listen({ transport: "unix", path: bytesPath });
(async () => {
  for await (const connection of listener) connection.readable.pipeTo(connection.writable).catch(() => {});
})();
Deno.serve({ path: httpPath, onListen: () => {} }, async (request) => {
  await request.bytes();
  return Response.json({ status: "denied", code: "TaintTooHigh", text: "denied: TaintTooHigh" });
});
console.log("listening");
for await (const _ of Deno.stdin.readable);
Deno.exit(0);
