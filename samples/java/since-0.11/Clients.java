import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients since 0.11. Each argument is a step: "do" says which, "config" configures the client. */
public class Clients extends Reporter {
  public static void main(String[] steps) throws Exception {
    steps(steps, Map.of("produce", Clients::produce, "consume", Clients::consume, "admin", Admins::admin,
        "pair", todo -> pair(todo, Clients::consume)));
  }

  static List<Object> headers(Headers headers) {
    List<Object> pairs = new ArrayList<>();
    for (Header header : headers) pairs.add(Arrays.asList(header.key(), payload(header.value())));
    return pairs;
  }

  /**
   * Transactions: with "transactions": ["commit", "abort", ...] each holds `count` records, and with
   * "offsets": {"group", "topic"} the offset of partition 0.
   */
  static void produce(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
      if (!todo.has("transactions")) {
        attempt(client, "produce", () -> send(todo, config, producer));
        return;
      }
      producer.initTransactions();
      for (JsonNode end : todo.get("transactions")) {
        producer.beginTransaction();
        send(todo, config, producer);
        if (todo.has("offsets")) {
          JsonNode offsets = todo.get("offsets");
          offsets(producer, offsets.get("topic").asText(), offsets.get("group").asText());
        }
        if (end.asText().equals("commit")) producer.commitTransaction();
        else producer.abortTransaction();
      }
    }
  }

  /** Up to 3.x by the group's name alone, from 4.0 on by its metadata. */
  static void offsets(KafkaProducer<?, ?> producer, String topic, String group) throws Exception {
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    offsets.put(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
    try {
      KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
          .invoke(producer, offsets, group);
    } catch (NoSuchMethodException newer) {
      Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
      KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata)
          .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
    }
  }

  static Void send(JsonNode todo, Properties config, KafkaProducer<byte[], byte[]> producer) throws Exception {
    List<Map<String, Object>> rows = new ArrayList<>();
    List<Future<RecordMetadata>> reports = new ArrayList<>();
    String topic = todo.get("topic").asText();
    for (int i = 0; i < todo.get("count").asInt() && !enough(todo); i++) {
      ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, key(i), value(todo, i));
      record.headers().add("number", bytes(Integer.toString(i)));
      rows.add(sent(config, topic, record.key(), record.value(), headers(record.headers())));
      reports.add(producer.send(record));
      Thread.sleep(todo.path("pause").asInt(0));
    }
    producer.flush();
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

  static void consume(JsonNode todo) throws Exception {
    attempt(config(todo).getProperty("client.id"), "consume", () -> read(todo));
  }

  /** With a group.id a member of the group, else all partitions of the topics from their beginning. */
  static Void read(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    String group = config.getProperty("group.id");
    List<String> topics = names(todo.get("topics"));
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      if (group != null) {
        consumer.subscribe(topics, new Listener(client, group));
      } else {
        List<TopicPartition> all = new ArrayList<>();
        for (String topic : topics)
          consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
        consumer.assign(all);
        consumer.seekToBeginning(all);
      }
      int wanted = todo.get("count").asInt();
      long until = System.currentTimeMillis() + todo.path("seconds").asInt(6) * 1000L;
      while (wanted > 0 && System.currentTimeMillis() < until)
        for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 200)) {
          wanted--;
          got(known(client, record.topic(), record.key(), record.value(), headers(record.headers())),
              record.partition(), record.offset());
        }
      if (group == null) return null;
      consumer.commitSync();
      for (TopicPartition p : consumer.assignment())
        commit(client, group, p.topic(), p.partition(), consumer.position(p));
      return null;
    }
  }

  /** poll(long) went with 4.0, poll(Duration) came with 2.0. */
  @SuppressWarnings("unchecked")
  static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long ms) throws Exception {
    Object records;
    try {
      records = KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(ms));
    } catch (NoSuchMethodException older) {
      records = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, ms);
    }
    return (ConsumerRecords<byte[], byte[]>) records;
  }

  static class Listener implements ConsumerRebalanceListener {
    final String client;
    final String group;

    Listener(String client, String group) {
      this.client = client;
      this.group = group;
    }

    static List<Object> pairs(Collection<TopicPartition> partitions) {
      return partitions.stream().map(p -> List.of(p.topic(), p.partition())).collect(Collectors.toList());
    }

    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      group(client, group, "assigned", pairs(partitions));
    }

    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      group(client, group, "revoked", pairs(partitions));
    }
  }
}
