// Produces records over TLS with kafkajs, and renegotiates the session in between, which only TLS 1.2 can.
//
// Arguments: broker, certificate, client ID, topic, number of records, version (TLSv1.2). Prints what was produced, a
// line of JSON each. `node --tls-keylog=FILE` writes the key log.
const fs = require("fs")
const tls = require("tls")
const { Kafka, Partitioners, logLevel } = require("kafkajs")

const [broker, certificate, clientId, topic, count, version] = process.argv.slice(2)
const sockets = []

function socketFactory({ host, port, onConnect }) {
  const options = { host, port, ca: fs.readFileSync(certificate), maxVersion: version }
  const socket = tls.connect(options, onConnect)
  sockets.push(socket)
  return socket
}

function renegotiated(socket) {
  return new Promise((resolve, reject) =>
    socket.renegotiate({}, (error) => (error ? reject(error) : resolve())),
  )
}

async function main() {
  const kafka = new Kafka({ clientId, brokers: [broker], socketFactory, logLevel: logLevel.ERROR })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  for (let number = 0; number < Number(count); number++) {
    const message = { key: `node-${number}`, value: "from Node" }
    const [{ partition, baseOffset }] = await producer.send({ topic, messages: [message] })
    const offset = Number(baseOffset)
    console.log(JSON.stringify({ client_id: clientId, topic, partition, offset, ...message }))
    if (version !== "TLSv1.2") continue
    for (const socket of sockets) if (!socket.destroyed) await renegotiated(socket)
  }
  await producer.disconnect()
}

main()
