import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.Resource;
import org.apache.kafka.common.resource.ResourceType;

/** Admin calls, 0.11 to 1.1. Those added in 1.0 and 1.1 are looked up by name. */
class Admins extends Reporter {
  static final String ADMIN = "org.apache.kafka.clients.admin.";

  /** "calls" in their order; "topics": [{"name", "partitions", "replicas", "config"}], "acl": {"topic", "principal"}. */
  static void admin(JsonNode todo) throws Exception {
    String client = config(todo).getProperty("client.id");
    try (AdminClient admin = AdminClient.create(config(todo))) {
      for (String call : names(todo.get("calls"))) attempt(client, call, call(admin, call, todo));
    }
  }

  static Callable<?> call(AdminClient admin, String call, JsonNode todo) {
    JsonNode topics = todo.path("topics");
    String first = topics.path(0).path("name").asText();
    TopicPartition partition = new TopicPartition(first, 0);
    return switch (call) {
      case "create topics" -> () -> admin.createTopics(topics(topics)).all().get();
      case "delete topics" -> () -> admin.deleteTopics(names(topics)).all().get();
      case "list topics" -> () -> admin.listTopics().names().get();
      case "describe topics" -> () -> admin.describeTopics(names(topics)).all().get();
      case "describe cluster" -> () -> admin.describeCluster().nodes().get();
      case "describe configs" -> () -> admin.describeConfigs(List.of(topic(first))).all().get();
      case "describe broker" ->
          () -> admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.BROKER, "1"))).all().get();
      case "set topic config" -> () -> admin.alterConfigs(Map.of(topic(first), change())).all().get();
      case "create acl" -> () -> admin.createAcls(acls(todo.get("acl"))).all().get();
      case "describe acls" -> () -> admin.describeAcls(AclBindingFilter.ANY).values().get();
      case "delete acl" -> () -> admin.deleteAcls(filters(acls(todo.get("acl")))).all().get();
      case "more partitions" ->
          () -> wait(admin, "createPartitions", Map.of(first, made("NewPartitions", "increaseTo", 3)));
      case "describe log dirs" -> () -> wait(admin, "describeLogDirs", List.of(1, 2));
      case "move log dir" -> () -> wait(admin, "alterReplicaLogDirs",
          Map.of(replica(first, 0, 1), "/tmp/kdissect-sample/elsewhere"));
      case "delete records" ->
          () -> wait(admin, "deleteRecords", Map.of(partition, made("RecordsToDelete", "beforeOffset", 1L)));
      default -> throw new IllegalArgumentException(call);
    };
  }

  static Method named(Class<?> owner, String name, int arguments) {
    return Arrays.stream(owner.getMethods())
        .filter(method -> method.getName().equals(name) && method.getParameterCount() == arguments)
        .findFirst().orElseThrow(() -> new UnsupportedOperationException(name));
  }

  static Object made(String owner, String name, Object argument) throws Exception {
    return named(Class.forName(ADMIN + owner), name, 1).invoke(null, argument);
  }

  static Object wait(AdminClient admin, String name, Object argument) throws Exception {
    Object result = named(AdminClient.class, name, 1).invoke(admin, argument);
    return ((KafkaFuture<?>) result.getClass().getMethod("all").invoke(result)).get();
  }

  static Object replica(String topic, int partition, int broker) throws Exception {
    return Class.forName("org.apache.kafka.common.TopicPartitionReplica")
        .getConstructor(String.class, int.class, int.class).newInstance(topic, partition, broker);
  }

  static List<NewTopic> topics(JsonNode topics) {
    List<NewTopic> made = new ArrayList<>();
    for (JsonNode topic : topics) {
      Map<String, String> config = new LinkedHashMap<>();
      topic.path("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
      made.add(new NewTopic(topic.get("name").asText(), topic.get("partitions").asInt(),
          (short) topic.path("replicas").asInt(1)).configs(config));
    }
    return made;
  }

  static ConfigResource topic(String name) {
    return new ConfigResource(ConfigResource.Type.TOPIC, name);
  }

  static Config change() {
    return new Config(Collections.singleton(new ConfigEntry("retention.ms", "1000000")));
  }

  /** One may do all with a topic, everybody may know that there is such a topic. */
  static List<AclBinding> acls(JsonNode acl) {
    return List.of(acl(acl, acl.get("principal").asText(), AclOperation.ALL), acl(acl, "User:*", AclOperation.DESCRIBE));
  }

  static AclBinding acl(JsonNode acl, String principal, AclOperation operation) {
    return new AclBinding(new Resource(ResourceType.TOPIC, acl.get("topic").asText()),
        new AccessControlEntry(principal, "*", operation, AclPermissionType.ALLOW));
  }

  static List<AclBindingFilter> filters(List<AclBinding> acls) {
    return acls.stream().map(AclBinding::toFilter).collect(Collectors.toList());
  }
}
