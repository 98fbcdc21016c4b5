import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Admin calls, since 2.8. */
class Admins extends Reporter {
  /**
   * "calls" in their order; "topics": [{"name", "partitions", "replicas", "config"}], "quota": {...}, "user": {...},
   * "group", "acl": {"topic", "principal"}, "brokers": [...], "configs": [...]. A call not named here is a method without arguments.
   */
  static void admin(JsonNode todo) throws Exception {
    String client = config(todo).getProperty("client.id");
    try (Admin admin = Admin.create(config(todo))) {
      for (String call : names(todo.get("calls"))) attempt(client, call, () -> wait(call(admin, call, todo)));
    }
  }

  static Object call(Admin admin, String call, JsonNode todo) throws Exception {
    JsonNode topics = todo.path("topics");
    JsonNode first = topics.path(0);
    TopicPartition partition = new TopicPartition(first.path("name").asText(), 0);
    return switch (call) {
      case "create topics" -> admin.createTopics(topics(topics)).all();
      case "delete topics" -> admin.deleteTopics(names(topics)).all();
      case "describe topics" -> admin.describeTopics(names(topics));
      case "describe configs" -> admin.describeConfigs(resources(topics)).all();
      case "set topic config" -> admin.incrementalAlterConfigs(changes(topics)).all();
      case "set configs" -> admin.incrementalAlterConfigs(configs(todo.get("configs"))).all();
      case "more partitions" ->
          admin.createPartitions(Map.of(first.get("name").asText(), NewPartitions.increaseTo(3))).all();
      case "delete records" ->
          admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all();
      case "list offsets" -> admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all();
      case "describe log dirs" -> admin.describeLogDirs(List.of(1, 2));
      case "move" -> admin.alterPartitionReassignments(Map.of(partition, move(todo.get("brokers")))).all();
      case "elect leaders" -> admin.electLeaders(ElectionType.PREFERRED, null).partitions();
      case "set quota" -> admin.alterClientQuotas(List.of(quota(todo.get("quota")))).all();
      case "describe quotas" -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities();
      case "set user" -> admin.alterUserScramCredentials(List.of(user(todo.get("user")))).all();
      case "describe users" -> admin.describeUserScramCredentials().all();
      case "create acl" -> admin.createAcls(acls(todo.get("acl"))).all();
      case "describe acls" -> admin.describeAcls(AclBindingFilter.ANY).values();
      case "delete acl" -> admin.deleteAcls(acls(todo.get("acl")).stream().map(AclBinding::toFilter).toList()).all();
      case "describe group" -> admin.describeConsumerGroups(List.of(todo.get("group").asText())).all();
      case "group offsets" ->
          admin.listConsumerGroupOffsets(todo.get("group").asText()).partitionsToOffsetAndMetadata();
      case "delete group offsets" ->
          admin.deleteConsumerGroupOffsets(todo.get("group").asText(), Set.of(partition)).all();
      case "delete group" -> admin.deleteConsumerGroups(List.of(todo.get("group").asText())).all();
      default -> Admin.class.getMethod(method(call)).invoke(admin);
    };
  }

  /** "describe quorum" is describeQuorum() and so on, for calls that not every release has. */
  static String method(String call) {
    String[] words = call.split(" ");
    StringBuilder name = new StringBuilder(words[0]);
    for (int i = 1; i < words.length; i++)
      name.append(Character.toUpperCase(words[i].charAt(0))).append(words[i].substring(1));
    return name.toString();
  }

  /** A future, or a result that holds futures: which of its methods give them differs from call to call. */
  static Void wait(Object result) throws Exception {
    if (result == null) return null;  // one of several ways to say it, of which the call has chosen another
    if (result instanceof KafkaFuture<?> future) {
      future.get();
    } else if (result instanceof Map<?, ?> several) {
      for (Object one : several.values()) wait(one);
    } else {
      for (var method : result.getClass().getMethods())
        if (method.getParameterCount() == 0 && KafkaFuture.class.isAssignableFrom(method.getReturnType()))
          wait(method.invoke(result));
    }
    return null;
  }

  static List<NewTopic> topics(JsonNode topics) {
    List<NewTopic> made = new ArrayList<>();
    for (JsonNode topic : topics) {
      Map<String, String> config = new LinkedHashMap<>();
      topic.path("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
      made.add(new NewTopic(topic.get("name").asText(), Optional.of(topic.get("partitions").asInt()),
          Optional.of((short) topic.path("replicas").asInt(1))).configs(config));
    }
    return made;
  }

  static List<ConfigResource> resources(JsonNode topics) {
    return names(topics).stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).toList();
  }

  static Map<ConfigResource, Collection<AlterConfigOp>> changes(JsonNode topics) {
    ConfigEntry entry = new ConfigEntry("retention.ms", "1000000");
    return resources(topics).stream()
        .collect(Collectors.toMap(topic -> topic, topic -> List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET))));
  }

  /** [{"type": "GROUP", "name": ..., "set": {...}}]: of whatever type the release has. */
  static Map<ConfigResource, Collection<AlterConfigOp>> configs(JsonNode configs) {
    Map<ConfigResource, Collection<AlterConfigOp>> changes = new LinkedHashMap<>();
    for (JsonNode config : configs) {
      List<AlterConfigOp> entries = new ArrayList<>();
      config.get("set").fields().forEachRemaining(e -> entries.add(
          new AlterConfigOp(new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
      ConfigResource.Type type = ConfigResource.Type.valueOf(config.get("type").asText());
      changes.put(new ConfigResource(type, config.get("name").asText()), entries);
    }
    return changes;
  }

  static Optional<NewPartitionReassignment> move(JsonNode brokers) {
    List<Integer> numbers = new ArrayList<>();
    brokers.forEach(number -> numbers.add(number.asInt()));
    return Optional.of(new NewPartitionReassignment(numbers));
  }

  static ClientQuotaAlteration quota(JsonNode quota) {
    var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, quota.get("client").asText()));
    return new ClientQuotaAlteration(entity,
        List.of(new ClientQuotaAlteration.Op(quota.get("key").asText(), quota.get("value").asDouble())));
  }

  static UserScramCredentialUpsertion user(JsonNode user) {
    var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
    return new UserScramCredentialUpsertion(user.get("name").asText(), info,
        bytes(user.get("password").asText()), bytes(user.get("salt").asText()));
  }

  /** One may do all with a topic, everybody may know that there is such a topic. */
  static List<AclBinding> acls(JsonNode acl) {
    return List.of(acl(acl, acl.get("principal").asText(), AclOperation.ALL), acl(acl, "User:*", AclOperation.DESCRIBE));
  }

  static AclBinding acl(JsonNode acl, String principal, AclOperation operation) {
    return new AclBinding(new ResourcePattern(ResourceType.TOPIC, acl.get("topic").asText(), PatternType.LITERAL),
        new AccessControlEntry(principal, "*", operation, AclPermissionType.ALLOW));
  }
}
