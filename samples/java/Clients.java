import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients. Each argument is a step as a JSON object: "do" says which, "config" configures the
 * client. What the client learns goes to stdout, a JSON object a line, "kind" being a list of the truth file.
 */
public class Clients {
  static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] steps) throws Exception {
    for (String step : steps) {
      JsonNode todo = JSON.readTree(step);
      switch (todo.get("do").asText()) {
        case "produce" -> produce(todo);
        case "consume" -> attempt(config(todo).getProperty("client.id"), "consume", () -> consume(todo));
        case "admin" -> admin(todo);
        default -> throw new IllegalArgumentException(step);
      }
    }
  }

  static Properties config(JsonNode todo) {
    Properties config = new Properties();
    todo.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
    return config;
  }

  static void tell(String kind, Map<String, ?> known) throws Exception {
    ObjectNode line = JSON.valueToTree(known);
    System.out.println(JSON.writeValueAsString(line.put("kind", kind)));
  }

  static void attempt(String client, String doing, Callable<?> step) throws Exception {
    try {
      step.call();
    } catch (Exception error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      tell("errors", Map.of("client_id", client, "doing", doing, "error", cause.toString()));
    }
  }

  static Object payload(byte[] data) {
    if (data == null) return null;
    if (data.length > 200) return Map.of("bytes", data.length);
    String text = new String(data, StandardCharsets.UTF_8);
    boolean exact = java.util.Arrays.equals(text.getBytes(StandardCharsets.UTF_8), data);
    return exact ? text : Map.of("base64", Base64.getEncoder().encodeToString(data));
  }

  static Map<String, Object> known(String client, String topic, byte[] key, byte[] value, Iterable<Header> headers) {
    Map<String, Object> known = new LinkedHashMap<>();
    known.put("client_id", client);
    known.put("topic", topic);
    known.put("key", payload(key));
    known.put("value", payload(value));
    List<Object> pairs = new ArrayList<>();
    for (Header header : headers) pairs.add(java.util.Arrays.asList(header.key(), payload(header.value())));
    known.put("headers", pairs);
    return known;
  }

  /** Transactions: with "transactions": ["commit", "abort", ...] each holds `count` records. */
  static void produce(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
      if (!todo.has("transactions")) {
        attempt(client, "produce", () -> send(todo, config, producer));
        return;
      }
      producer.initTransactions();
      for (JsonNode end : todo.get("transactions")) {
        producer.beginTransaction();
        send(todo, config, producer);
        if (end.asText().equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
      }
    }
  }

  static Void send(JsonNode todo, Properties config, KafkaProducer<byte[], byte[]> producer) throws Exception {
    List<Map<String, Object>> told = new ArrayList<>();
    List<java.util.concurrent.Future<RecordMetadata>> reports = new ArrayList<>();
    String topic = todo.get("topic").asText();
    for (int i = 0; i < todo.get("count").asInt(); i++) {
      byte[] value = ("value " + i + " ").repeat(todo.path("repeat").asInt(1)).getBytes(StandardCharsets.UTF_8);
      var record = new ProducerRecord<>(topic, null, ("key-" + i).getBytes(StandardCharsets.UTF_8), value);
      record.headers().add("number", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
      Map<String, Object> known =
          known(config.getProperty("client.id"), topic, record.key(), value, record.headers());
      known.put("codec", config.getProperty("compression.type", "none"));
      known.put("acks", Integer.parseInt(config.getProperty("acks", "-1")));
      known.put("partition", null);
      known.put("offset", null);
      known.put("error", null);
      told.add(known);
      reports.add(producer.send(record));
    }
    producer.flush();
    for (int i = 0; i < told.size(); i++) {
      try {
        RecordMetadata report = reports.get(i).get();
        told.get(i).put("partition", report.partition());
        told.get(i).put("offset", report.hasOffset() ? report.offset() : null);
      } catch (java.util.concurrent.ExecutionException error) {
        told.get(i).put("error", error.getCause().toString());
      }
      tell("produced", told.get(i));
    }
    return null;
  }

  /** With a group.id a member of the group, else all partitions of the topics from their beginning. */
  static Void consume(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    String group = config.getProperty("group.id");
    List<String> topics = new ArrayList<>();
    todo.get("topics").forEach(topic -> topics.add(topic.asText()));
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(config, bytes, new ByteArrayDeserializer())) {
      if (group != null) {
        consumer.subscribe(topics, new Told(client, group));
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
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
          wanted--;
          var known = known(client, record.topic(), record.key(), record.value(), record.headers());
          known.put("partition", record.partition());
          known.put("offset", record.offset());
          tell("consumed", known);
        }
      if (group == null) return null;
      consumer.commitSync();
      for (TopicPartition p : consumer.assignment())
        tell("commits", Map.of("client_id", client, "group_id", group, "topic", p.topic(),
            "partition", p.partition(), "offset", consumer.position(p)));
      return null;
    }
  }

  record Told(String client, String group) implements ConsumerRebalanceListener {
    void tell(String event, Collection<TopicPartition> partitions) {
      var pairs = partitions.stream().map(p -> List.of(p.topic(), p.partition())).toList();
      try {
        Clients.tell("groups", Map.of("client_id", client, "group_id", group, "event", event, "partitions", pairs));
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }

    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      tell("assigned", partitions);
    }

    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      tell("revoked", partitions);
    }
  }

  /** "calls" in their order; "topics": [{"name", "partitions", "replicas", "config"}], "quota": {...}, "user": {...}. */
  static void admin(JsonNode todo) throws Exception {
    Properties config = config(todo);
    String client = config.getProperty("client.id");
    try (Admin admin = Admin.create(config)) {
      for (JsonNode named : todo.get("calls")) {
        String call = named.asText();
        attempt(client, call, () -> switch (call) {
          case "create topics" -> admin.createTopics(topics(todo.get("topics"))).all().get();
          case "delete topics" -> admin.deleteTopics(names(todo.get("topics"))).all().get();
          case "describe topics" -> admin.describeTopics(names(todo.get("topics"))).allTopicNames().get();
          case "describe configs" -> admin.describeConfigs(resources(todo.get("topics"))).all().get();
          case "set quota" -> admin.alterClientQuotas(List.of(quota(todo.get("quota")))).all().get();
          case "describe quotas" -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
          case "set user" -> admin.alterUserScramCredentials(List.of(user(todo.get("user")))).all().get();
          case "describe users" -> admin.describeUserScramCredentials().all().get();
          case "describe quorum" -> admin.describeMetadataQuorum().quorumInfo().get();
          case "describe features" -> admin.describeFeatures().featureMetadata().get();
          case "describe cluster" -> admin.describeCluster().nodes().get();
          case "list transactions" -> admin.listTransactions().all().get();
          case "set topic config" -> admin.incrementalAlterConfigs(changes(todo.get("topics"))).all().get();
          case "elect leaders" ->
              admin.electLeaders(org.apache.kafka.common.ElectionType.PREFERRED, null).partitions().get();
          default -> throw new IllegalArgumentException(call);
        });
      }
    }
  }

  static List<String> names(JsonNode topics) {
    List<String> names = new ArrayList<>();
    topics.forEach(topic -> names.add(topic.get("name").asText()));
    return names;
  }

  static List<NewTopic> topics(JsonNode topics) {
    List<NewTopic> made = new ArrayList<>();
    for (JsonNode topic : topics) {
      Map<String, String> config = new LinkedHashMap<>();
      topic.path("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
      made.add(new NewTopic(topic.get("name").asText(), Optional.of(topic.get("partitions").asInt()),
          Optional.of((short) topic.path("replicas").asInt(1))).configs(config));
    }
    return made;
  }

  static List<ConfigResource> resources(JsonNode topics) {
    return names(topics).stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).toList();
  }

  static Map<ConfigResource, Collection<AlterConfigOp>> changes(JsonNode topics) {
    Map<ConfigResource, Collection<AlterConfigOp>> changes = new LinkedHashMap<>();
    for (ConfigResource topic : resources(topics))
      changes.put(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1000000"), AlterConfigOp.OpType.SET)));
    return changes;
  }

  static ClientQuotaAlteration quota(JsonNode quota) {
    var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, quota.get("client").asText()));
    return new ClientQuotaAlteration(entity,
        List.of(new ClientQuotaAlteration.Op(quota.get("key").asText(), quota.get("value").asDouble())));
  }

  static UserScramCredentialUpsertion user(JsonNode user) {
    var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
    return new UserScramCredentialUpsertion(user.get("name").asText(), info,
        user.get("password").asText().getBytes(StandardCharsets.UTF_8),
        user.get("salt").asText().getBytes(StandardCharsets.UTF_8));
  }
}
