// What real_app.py serves, by Node's own http module, on an inherited socket.
import http from "node:http";

const server = http.createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/echo") {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces);
      response.writeHead(200, { "content-length": body.length });
      response.end(body);
    });
  } else if (path === "/chunks") {
    response.writeHead(200, { "content-type": "text/plain" });
    for (let number = 0; number < 200; number++) {
      response.write(String(number).padStart(6, "0").repeat(200));
    }
    response.end();
  } else {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let number = 0; number < 10; number++) response.write(`data: ${number}\n\n`);
    response.end();
  }
});
server.keepAliveTimeout = 500;
server.listen({ fd: Number(process.argv[2]) });
