import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients of 0.8.2: its new producer, and the producer and the consumers in Scala that were before. */
public class Clients extends Reporter {
  public static void main(String[] steps) throws Exception {
    steps(steps, Map.of("produce", Clients::produce, "produce by Scala", Clients::produceByScala,
        "consume", Clients::consume, "pair", todo -> pair(todo, Clients::consume), "offsets", Clients::offsets));
  }

  static void produce(JsonNode todo) throws Exception {
    Properties config = config(todo);
    attempt(config.getProperty("client.id"), "produce", () -> {
      try (KafkaProducer<byte[], byte[]> producer =
          new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
        return send(todo, config, producer);
      }
    });
  }

  static Void send(JsonNode todo, Properties config, KafkaProducer<byte[], byte[]> producer) throws Exception {
    List<Map<String, Object>> rows = new ArrayList<>();
    List<Future<RecordMetadata>> reports = new ArrayList<>();
    String topic = todo.get("topic").asText();
    for (int i = 0; i < todo.get("count").asInt() && !enough(todo); i++) {
      byte[] key = key(i), value = value(todo, i);
      rows.add(sent(config, topic, key, value, List.of()));
      reports.add(producer.send(new ProducerRecord<>(topic, key, value)));
      Thread.sleep(todo.path("pause").asInt(0));
    }
    for (int i = 0; i < rows.size(); i++) {
      try {
        RecordMetadata report = reports.get(i).get();
        rows.get(i).put("partition", report.partition());
        rows.get(i).put("offset", report.offset() < 0 ? null : report.offset());
      } catch (ExecutionException error) {
        rows.get(i).put("error", error.getCause().toString());
      }
      report("produced", rows.get(i));
    }
    return null;
  }

  /** It sends all records at once, and gets neither partition nor offset. */
  static void produceByScala(JsonNode todo) throws Exception {
    Properties config = config(todo);
    config.put("metadata.broker.list", config.getProperty("bootstrap.servers"));
    List<KeyedMessage<byte[], byte[]>> records = new ArrayList<>();
    String topic = todo.get("topic").asText();
    for (int i = 0; i < todo.get("count").asInt(); i++)
      records.add(new KeyedMessage<>(topic, key(i), value(todo, i)));
    attempt(config.getProperty("client.id"), "produce", () -> {
      Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(config));
      producer.send(records);
      producer.close();
      for (KeyedMessage<byte[], byte[]> record : records) {
        Map<String, Object> known = sent(config, topic, record.key(), record.message(), List.of());
        known.put("codec", config.getProperty("compression.codec", "none"));
        known.put("acks", Integer.parseInt(config.getProperty("request.required.acks")));
        report("produced", known);
      }
      return null;
    });
  }

  /** A member of the group named by group.id, whose members find each other through ZooKeeper. */
  static void consume(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    ConsumerConnector consumer = Consumer.createJavaConsumerConnector(new ConsumerConfig(config));
    String topic = todo.get("topics").get(0).asText();
    KafkaStream<byte[], byte[]> stream = consumer.createMessageStreams(Map.of(topic, 1)).get(topic).get(0);
    int wanted = todo.get("count").asInt();
    long until = System.currentTimeMillis() + todo.path("seconds").asInt(6) * 1000L;
    ConsumerIterator<byte[], byte[]> records = stream.iterator();
    while (wanted > 0 && System.currentTimeMillis() < until)
      try {
        MessageAndMetadata<byte[], byte[]> record = records.next();
        wanted--;
        got(known(client, topic, record.key(), record.message(), List.of()), record.partition(), record.offset());
      } catch (ConsumerTimeoutException nothing) {
        continue;
      }
    consumer.commitOffsets();
    consumer.shutdown();
  }

  /** The first and the last offset of a topic's partition 0, from one broker. */
  static void offsets(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    TopicAndPartition partition = new TopicAndPartition(todo.get("topic").asText(), 0);
    SimpleConsumer consumer = new SimpleConsumer("127.0.0.1", todo.get("port").asInt(), 5000, 65536, client);
    for (long time : new long[] {kafka.api.OffsetRequest.EarliestTime(), kafka.api.OffsetRequest.LatestTime()}) {
      Map<TopicAndPartition, PartitionOffsetRequestInfo> request = new HashMap<>();
      request.put(partition, new PartitionOffsetRequestInfo(time, 1));
      consumer.getOffsetsBefore(new OffsetRequest(request, (short) 0, client));
    }
    consumer.close();
  }
}
