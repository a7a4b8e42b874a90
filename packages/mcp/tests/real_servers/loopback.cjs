// Preloaded into a server: it listens on the loopback interface alone, and says on which port.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.log(`port ${this.address().port}`));
  return listen.call(this, Number(port), "127.0.0.1", ...rest.filter((value) => typeof value === "function"));
};
