import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a topic as a member of a share group: TOPIC COUNT KEY=VALUE...
 *
 * Values that begin with "bad" are rejected, those that begin with "again" released the first time,
 * those that begin with "long" renewed once. Prints a line for each record: its value, how often it
 * was delivered, and what was said. Ends when COUNT records are accepted or rejected.
 */
public class Share {
    public static void main(String[] words) {
        int wanted = Integer.parseInt(words[1]);
        Properties settings = new Properties();
        for (int i = 2; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        settings.put("share.acknowledgement.mode", "explicit");
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(words[0]));
            System.out.println("ready");
            int done = 0;
            long deadline = System.currentTimeMillis() + 40_000;
            while (done < wanted && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    AcknowledgeType said = decide(record);
                    consumer.acknowledge(record, said);
                    if (said != AcknowledgeType.RELEASE && said != AcknowledgeType.RENEW) {
                        done++;
                    }
                    System.out.println(record.value() + "\t" + record.deliveryCount().orElse((short) 0)
                        + "\t" + said);
                }
                check(consumer.commitSync());
            }
        }
        System.out.println("closed");
    }

    private static final Set<String> renewed = new HashSet<>();

    private static AcknowledgeType decide(ConsumerRecord<String, String> record) {
        if (record.value().startsWith("bad")) {
            return AcknowledgeType.REJECT;
        }
        if (record.value().startsWith("again") && record.deliveryCount().orElse((short) 0) == 1) {
            return AcknowledgeType.RELEASE;
        }
        // A record whose lock was renewed comes back with the next poll.
        boolean renews = record.value().startsWith("long") && renewed.add(record.value());
        return renews ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
    }

    private static void check(Map<TopicIdPartition, Optional<KafkaException>> outcome) {
        outcome.forEach((partition, problem) -> problem.ifPresent(each -> {
            throw each;
        }));
    }
}
