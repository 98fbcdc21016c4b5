import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What only 4.x has: share groups, and admin calls about groups other than consumer groups. */
public class Newest extends Reporter {
  public static void main(String[] steps) throws Exception {
    steps(steps, Map.of("share", Newest::share, "admin", Newest::admin,
        "pair", todo -> pair(todo, Newest::share)));
  }

  /** Accepts, releases, rejects and renews by turns; what is released comes again. */
  static void share(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    AcknowledgeType[] answers = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
    try (var consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(names(todo.get("topics")));
      long until = System.currentTimeMillis() + todo.path("seconds").asInt(6) * 1000L;
      int seen = 0;
      while (System.currentTimeMillis() < until)
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(300))) {
          AcknowledgeType answer = answers[seen++ % answers.length];
          consumer.acknowledge(record, answer);
          List<Object> headers = new java.util.ArrayList<>();
          record.headers().forEach(h -> headers.add(Arrays.asList(h.key(), payload(h.value()))));
          Map<String, Object> known = known(client, record.topic(), record.key(), record.value(), headers);
          known.put("acknowledged", answer.toString());
          got(known, record.partition(), record.offset());
        }
      consumer.commitSync();
    }
  }

  /** "calls" in their order, "group" and "topic". */
  static void admin(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String group = todo.get("group").asText();
    String topic = todo.get("topic").asText();
    TopicPartition partition = new TopicPartition(topic, 0);
    try (Admin admin = Admin.create(config)) {
      for (String call : names(todo.get("calls")))
        attempt(config.getProperty("client.id"), call, () -> Admins.wait(switch (call) {
          case "list groups" -> admin.listGroups().all();
          case "describe share group" -> admin.describeShareGroups(List.of(group)).all();
          case "share offsets" -> admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all();
          case "set share offsets" -> admin.alterShareGroupOffsets(group, Map.of(partition, 1L)).all();
          case "delete share offsets" -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all();
          case "delete share group" -> admin.deleteShareGroups(List.of(group)).all();
          case "describe streams group" -> admin.describeStreamsGroups(List.of(group)).all();
          case "delete streams group" -> admin.deleteStreamsGroups(List.of(group)).all();
          case "describe producers" -> admin.describeProducers(List.of(partition)).all();
          case "list config resources" -> admin.listConfigResources().all();
          default -> throw new IllegalArgumentException(call);
        }));
    }
  }
}
