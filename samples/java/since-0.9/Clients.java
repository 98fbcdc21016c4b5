import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients 0.9 to 0.10.2, whose records have no headers. */
public class Clients extends Reporter {
  public static void main(String[] steps) throws Exception {
    steps(steps, Map.of("produce", Clients::produce, "consume", Clients::consume,
        "pair", todo -> pair(todo, Clients::consume)));
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

  static void consume(JsonNode todo) throws Exception {
    attempt(config(todo).getProperty("client.id"), "consume", () -> read(todo));
  }

  /** A member of the group named by group.id. */
  static Void read(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    String group = config.getProperty("group.id");
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(names(todo.get("topics")), new Listener(client, group));
      int wanted = todo.get("count").asInt();
      long until = System.currentTimeMillis() + todo.path("seconds").asInt(6) * 1000L;
      while (wanted > 0 && System.currentTimeMillis() < until)
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(200)) {
          wanted--;
          got(known(client, record.topic(), record.key(), record.value(), List.of()),
              record.partition(), record.offset());
        }
      consumer.commitSync();
      for (TopicPartition p : consumer.assignment())
        commit(client, group, p.topic(), p.partition(), consumer.position(p));
      return null;
    }
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
